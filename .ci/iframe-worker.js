// Search runs in a worker, which browsers refuse to start from file://. There, run its script in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = null
      this.onerror = null
      this.onmessageerror = null
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html>")
      inside.document.close()
      inside.postMessage = data => setTimeout(() => this.tell("message", new MessageEvent("message", {data})))
      const script = inside.document.createElement("script")
      script.src = new URL(url, document.baseURI).href
      // Messages that come before the script has run would find no handler.
      this.loaded = new Promise(resolve => script.addEventListener("load", resolve))
      script.addEventListener("error", () => this.tell("error", new ErrorEvent("error", {message: `Cannot load ${url}`})))
      inside.document.documentElement.append(script)
    }

    tell(name, event) {
      const handler = this[`on${name}`]
      if (handler) handler.call(this, event)
      this.dispatchEvent(event)
    }

    async postMessage(data) {
      await this.loaded
      const inside = this.frame.contentWindow
      if (inside) inside.dispatchEvent(new inside.MessageEvent("message", {data}))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
