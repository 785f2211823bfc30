<?xml version="1.0" encoding="utf-8"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
                xmlns:s="http://example.com/shop" exclude-result-prefixes="s">
  <xsl:output method="xml" encoding="utf-8" omit-xml-declaration="yes"/>
  <xsl:template match="/s:Order">
    <Invoice xmlns="http://example.com/billing">
      <xsl:attribute name="to"><xsl:value-of select="s:Customer"/></xsl:attribute>
      <Due><xsl:value-of select="s:Amount"/></Due>
    </Invoice>
  </xsl:template>
</xsl:stylesheet>
