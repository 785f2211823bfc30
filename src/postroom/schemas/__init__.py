"""The message types of an application and the fields to promote from them. No pipeline and no database here.

``postroom.schemas.annotations`` reads schema files and needs lxml. The registry does not.
"""

from __future__ import annotations

from postroom.schemas.registry import PromotedField, Schema, Schemas, WrittenField

__all__ = ["PromotedField", "Schema", "Schemas", "WrittenField"]
