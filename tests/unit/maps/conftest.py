from __future__ import annotations

from pathlib import Path

import pytest

ORDER_TO_INVOICE = b"""<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/order">
  <xsl:if test="not(total)"><xsl:message terminate="yes">an order has a total</xsl:message></xsl:if>
  <invoice><amount><xsl:value-of select="total"/></amount><note><xsl:value-of select="note"/></note></invoice>
</xsl:template>
</xsl:stylesheet>
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an application's folder with a stylesheet."""
    (tmp_path / "order-to-invoice.xslt").write_bytes(ORDER_TO_INVOICE)
    return tmp_path
