"""What is promoted from a record of a flat file, and from the header before it."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.pipelines.definitions import FlatFile
from postroom.pipelines.flat.layout import HEADER
from postroom.pipelines.promote import promote_text
from postroom.values import Value


class FlatPromotion:
    """Reads the promoted values out of the texts of a record; those of the header are the same for every record."""

    def __init__(self, pipeline: FlatFile, header: Sequence[str | None]) -> None:
        self._values: list[Value | None] = []
        self._own = []
        for place, (prop, path) in enumerate(pipeline.promotions.entries):
            self._values.append(None)
            if not path.startswith(HEADER):
                self._own.append((place, prop, path, pipeline.record.names.index(path)))
            elif pipeline.header is not None and header:
                text = header[pipeline.header.names.index(path.removeprefix(HEADER))]
                self._values[place] = promote_text(prop, text, path=path)

    def values(self, texts: Sequence[str | None]) -> list[Value | None]:
        values = self._values.copy()
        for place, prop, path, position in self._own:
            values[place] = promote_text(prop, texts[position], path=path)
        return values
