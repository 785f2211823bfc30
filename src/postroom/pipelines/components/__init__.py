"""The components of receive and send pipelines: their base classes and the built-in components."""

from __future__ import annotations

from postroom.pipelines.components.assemblers import JsonAssembler, JsonEnvelope, XmlAssembler, XmlEnvelope
from postroom.pipelines.components.compression import Gzip, GzipEncoder, Zip, ZipEncoder
from postroom.pipelines.components.contract import (
    CONSUMED,
    Assembler,
    Component,
    Decoder,
    Disassembler,
    Encoder,
    PartyResolver,
    PreAssembler,
    Suspend,
    Validator,
)
from postroom.pipelines.components.flat_assemblers import CsvAssembler, FlatFileAssembler
from postroom.pipelines.components.mime import Mime, MimeEncoder
from postroom.pipelines.components.party import PartyByCertificate, PartyByKey
from postroom.pipelines.components.smime import SMime, SMimeEncoder
from postroom.pipelines.components.text import Base64, Base64Encoder, Charset, CharsetEncoder
from postroom.pipelines.components.validators import JsonSchema, Xsd
from postroom.secrets.credentials import key_hash
from postroom.temporary_bodies import spool

__all__ = [
    "CONSUMED",
    "Assembler",
    "Base64",
    "Base64Encoder",
    "Charset",
    "CharsetEncoder",
    "Component",
    "CsvAssembler",
    "Decoder",
    "Disassembler",
    "Encoder",
    "FlatFileAssembler",
    "Gzip",
    "GzipEncoder",
    "JsonAssembler",
    "JsonEnvelope",
    "JsonSchema",
    "Mime",
    "MimeEncoder",
    "PartyByCertificate",
    "PartyByKey",
    "PartyResolver",
    "PreAssembler",
    "SMime",
    "SMimeEncoder",
    "Suspend",
    "Validator",
    "XmlAssembler",
    "XmlEnvelope",
    "Xsd",
    "Zip",
    "ZipEncoder",
    "key_hash",
    "spool",
]
