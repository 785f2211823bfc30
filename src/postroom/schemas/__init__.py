"""Schemas: which message types an application knows, and what to promote from each. No pipeline and no database here.

Reading schema files is in ``postroom.schemas.load``, which needs lxml; the registry does not.
"""

from __future__ import annotations

from postroom.schemas.registry import PromotedField, Schema, Schemas, WrittenField

__all__ = ["PromotedField", "Schema", "Schemas", "WrittenField"]
