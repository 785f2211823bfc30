"""BizTalk's system properties, under the short names that filters use: ``BTS.ReceivePortName``.

The names are BizTalk's own, to the letter.
"""
# ruff: noqa: N815

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from postroom.properties import (
    ERROR_REPORT_NAMESPACE,
    FILE_NAMESPACE,
    HTTP_NAMESPACE,
    SYSTEM_NAMESPACE,
    Property,
    dotted_name,
    split_key,
)

T = TypeVar("T")


def _bts(name: str, type: type[T]) -> Property[T]:
    return Property(name, type, namespace=SYSTEM_NAMESPACE)


def _file(name: str, type: type[T]) -> Property[T]:
    return Property(name, type, namespace=FILE_NAMESPACE)


def _http(name: str, type: type[T], *, sensitive: bool = False) -> Property[T]:
    return Property(name, type, namespace=HTTP_NAMESPACE, sensitive=sensitive)


def _error(name: str, type: type[T]) -> Property[T]:
    return Property(name, type, namespace=ERROR_REPORT_NAMESPACE)


class BTS:
    """The system properties: what the engine writes to the context of a message, and what directs it."""

    AckDescription = _bts("AckDescription", str)
    AckFailureCategory = _bts("AckFailureCategory", int)
    AckFailureCode = _bts("AckFailureCode", str)
    AckID = _bts("AckID", str)
    AckInboundTransportLocation = _bts("AckInboundTransportLocation", str)
    AckOutboundTransportLocation = _bts("AckOutboundTransportLocation", str)
    AckOwnerID = _bts("AckOwnerID", str)
    AckReceivePortID = _bts("AckReceivePortID", str)
    AckReceivePortName = _bts("AckReceivePortName", str)
    AckRequired = _bts("AckRequired", bool)
    AckSendPortID = _bts("AckSendPortID", str)
    AckSendPortName = _bts("AckSendPortName", str)
    AckType = _bts("AckType", str)
    ActionOnFailure = _bts("ActionOnFailure", int)
    ActivationServiceID = _bts("ActivationServiceID", str)
    BackupEndpointInfo = _bts("BackupEndpointInfo", str)
    BatchRequired = _bts("BatchRequired", bool)
    BizTalkControl = _bts("BizTalkControl", str)
    CorrelationToken = _bts("CorrelationToken", str)
    DecryptionCert = _bts("DecryptionCert", str)
    DestinationParty = _bts("DestinationParty", str)
    DestinationPartyID = _bts("DestinationPartyID", str)
    DestinationPartyQualifier = _bts("DestinationPartyQualifier", str)
    EncryptionCert = _bts("EncryptionCert", str)
    EndpointGroup = _bts("EndpointGroup", str)
    EpmRRCorrelationToken = _bts("EpmRRCorrelationToken", str)
    ExpirationTime = _bts("ExpirationTime", datetime)
    FaultName = _bts("FaultName", str)
    FaultQueue = _bts("FaultQueue", str)
    HopCount = _bts("HopCount", int)  # how many services have passed it on; not in the published schema
    HopServices = _bts("HopServices", str)  # the last of these services; not in the published schema
    InboundTransportLocation = _bts("InboundTransportLocation", str)
    InboundTransportType = _bts("InboundTransportType", str)
    InterchangeID = _bts("InterchangeID", str)
    InterchangeSequenceNumber = _bts("InterchangeSequenceNumber", int)
    IsDynamicSend = _bts("IsDynamicSend", bool)
    IsFragmented = _bts("IsFragmented", bool)
    IsReliable = _bts("IsReliable", bool)
    IsRequestResponse = _bts("IsRequestResponse", bool)
    IsSolicitResponse = _bts("IsSolicitResponse", bool)
    JobID = _bts("JobID", str)
    LRPMsgBodyTracking = _bts("LRPMsgBodyTracking", int)
    LTPMsgBodyTracking = _bts("LTPMsgBodyTracking", int)
    LastInterchangeMessage = _bts("LastInterchangeMessage", bool)
    LoopBack = _bts("LoopBack", bool)
    MessageDestination = _bts("MessageDestination", str)
    MessageExchangePattern = _bts("MessageExchangePattern", int)
    MessageID = _bts("MessageID", str)
    MessageType = _bts("MessageType", str)
    Operation = _bts("Operation", str)
    OriginatorPID = _bts("OriginatorPID", str)  # the party that a message is from; not in the published schema
    OriginatorSID = _bts("OriginatorSID", str)  # the account that published it; not in the published schema
    OutboundTransportCLSID = _bts("OutboundTransportCLSID", str)
    OutboundTransportLocation = _bts("OutboundTransportLocation", str)
    OutboundTransportType = _bts("OutboundTransportType", str)
    PartnerPort = _bts("PartnerPort", str)
    PartnerService = _bts("PartnerService", str)
    PassAckThrough = _bts("PassAckThrough", bool)
    PassThrough = _bts("PassThrough", bool)
    PipelinesExecuted = _bts("PipelinesExecuted", int)
    ProcessingParts = _bts("ProcessingParts", str)
    PropertiesToUpdate = _bts("PropertiesToUpdate", str)
    ReceiveLocationName = _bts("ReceiveLocationName", str)  # not in the published schema, but on received messages
    ReceivePipelineConfig = _bts("ReceivePipelineConfig", str)
    ReceivePipelineID = _bts("ReceivePipelineID", str)
    ReceivePipelineResponseConfig = _bts("ReceivePipelineResponseConfig", str)
    ReceivePortID = _bts("ReceivePortID", str)
    ReceivePortName = _bts("ReceivePortName", str)
    ReceivePortTransformHint = _bts("ReceivePortTransformHint", str)
    ReqRespTransmitPipelineID = _bts("ReqRespTransmitPipelineID", str)
    ReplyTo = _bts("ReplyTo", str)  # where answers are sent to; not in the published schema
    RetryCount = _bts("RetryCount", int)
    RetryInterval = _bts("RetryInterval", int)
    RouteDirectToTP = _bts("RouteDirectToTP", bool)
    SOAPAction = _bts("SOAPAction", str)
    SPGroupID = _bts("SPGroupID", str)
    SPID = _bts("SPID", str)
    SPName = _bts("SPName", str)
    SPTransportBackupID = _bts("SPTransportBackupID", str)
    SPTransportID = _bts("SPTransportID", str)
    SSOTicket = Property("SSOTicket", str, namespace=SYSTEM_NAMESPACE, sensitive=True)
    SchemaStrongName = _bts("SchemaStrongName", str)
    SendPipelineConfig = _bts("SendPipelineConfig", str)
    SendPipelineResponseConfig = _bts("SendPipelineResponseConfig", str)
    SendPortTransformHint = _bts("SendPortTransformHint", str)
    SignatureCertificate = _bts("SignatureCertificate", str)
    SigningCert = _bts("SigningCert", str)
    SourceParty = _bts("SourceParty", str)
    SourcePartyEvidence = _bts("SourcePartyEvidence", str)
    SourcePartyEvidenceQualifier = _bts("SourcePartyEvidenceQualifier", str)
    SourcePartyID = _bts("SourcePartyID", str)
    SourcePartyQualifier = _bts("SourcePartyQualifier", str)
    SuppressRoutingFailureDiagnosticInfo = _bts("SuppressRoutingFailureDiagnosticInfo", bool)
    SuspendAsNonResumable = _bts("SuspendAsNonResumable", bool)
    SuspendMessageOnMappingFailure = _bts("SuspendMessageOnMappingFailure", bool)
    SuspendMessageOnRoutingFailure = _bts("SuspendMessageOnRoutingFailure", bool)
    TransmitPipelineID = _bts("TransmitPipelineID", str)
    TransmitWorkID = _bts("TransmitWorkID", str)
    WindowsUser = _bts("WindowsUser", str)
    WorkID = _bts("WorkID", str)
    commitmentRct_commitmentCode = _bts("commitmentRct_commitmentCode", str)
    commitmentRct_decidedAt = _bts("commitmentRct_decidedAt", datetime)
    commitmentRct_decision = _bts("commitmentRct_decision", str)
    commitmentRct_identity = _bts("commitmentRct_identity", str)
    deliveryRct_identity = _bts("deliveryRct_identity", str)
    deliveryRct_receivedAt = _bts("deliveryRct_receivedAt", datetime)
    eps_from_address = _bts("eps_from_address", str)
    eps_from_address_type = _bts("eps_from_address_type", str)
    eps_to_address = _bts("eps_to_address", str)
    eps_to_address_type = _bts("eps_to_address_type", str)
    fault_faultactor = _bts("fault_faultactor", str)
    fault_faultcode = _bts("fault_faultcode", str)
    fault_faultstring = _bts("fault_faultstring", str)
    prc_instance = _bts("prc_instance", str)
    prc_type = _bts("prc_type", str)
    prop_identity = _bts("prop_identity", str)
    prop_sentAt = _bts("prop_sentAt", datetime)
    prop_topic = _bts("prop_topic", str)
    svc_commitmentRctRqt_sendBy = _bts("svc_commitmentRctRqt_sendBy", datetime)
    svc_commitmentRctRqt_sendTo_address = _bts("svc_commitmentRctRqt_sendTo_address", str)
    svc_commitmentRctRqt_sendTo_address_type = _bts("svc_commitmentRctRqt_sendTo_address_type", str)
    svc_deliveryRctRqt_sendBy = _bts("svc_deliveryRctRqt_sendBy", datetime)
    svc_deliveryRctRqt_sendTo_address = _bts("svc_deliveryRctRqt_sendTo_address", str)
    svc_deliveryRctRqt_sendTo_address_type = _bts("svc_deliveryRctRqt_sendTo_address_type", str)


class FILE:
    """Properties that the File adapter writes."""

    AllowCacheOnWrite = _file("AllowCacheOnWrite", bool)
    CopyMode = _file("CopyMode", int)
    ReceivedFileName = _file("ReceivedFileName", str)


class HTTP:
    """Properties that the HTTP adapters write. Listings hide values that may be secrets."""

    AffiliateApplicationName = _http("AffiliateApplicationName", str)
    AuthenticationScheme = _http("AuthenticationScheme", str)
    Certificate = _http("Certificate", str)
    ContentType = _http("ContentType", str)
    EnableChunkedEncoding = _http("EnableChunkedEncoding", bool)
    HttpCookie = _http("HttpCookie", str, sensitive=True)
    InboundHttpHeaders = _http("InboundHttpHeaders", str, sensitive=True)
    MaxRedirects = _http("MaxRedirects", int)
    Password = _http("Password", str, sensitive=True)
    ProxyName = _http("ProxyName", str)
    ProxyPassword = _http("ProxyPassword", str, sensitive=True)
    ProxyPort = _http("ProxyPort", int)
    ProxyUsername = _http("ProxyUsername", str)
    QueryString = _http("QueryString", str)  # not in the published schema
    RemoteAddress = _http("RemoteAddress", str)  # not in the published schema
    RequestTimeout = _http("RequestTimeout", int)
    ResponseStatusCode = _http("ResponseStatusCode", int)
    SubmissionHandle = _http("SubmissionHandle", str)
    UseHandlerProxySettings = _http("UseHandlerProxySettings", bool)
    UseProxy = _http("UseProxy", bool)
    UseSSO = _http("UseSSO", bool)
    UserHttpHeaders = _http("UserHttpHeaders", str, sensitive=True)
    Username = _http("Username", str)


class ErrorReport:
    """Properties of an error message that describe the failure (FMR-03)."""

    Description = _error("Description", str)
    ErrorType = _error("ErrorType", str)
    FailureAdapter = _error("FailureAdapter", str)
    FailureCategory = _error("FailureCategory", int)
    FailureCode = _error("FailureCode", str)
    FailureInstanceID = _error("FailureInstanceID", str)
    FailureMessageID = _error("FailureMessageID", str)
    FailureTime = _error("FailureTime", datetime)
    InboundTransportLocation = _error("InboundTransportLocation", str)
    MessageType = _error("MessageType", str)
    OutboundTransportLocation = _error("OutboundTransportLocation", str)
    ProcessingServer = _error("ProcessingServer", str)
    ReceivePortName = _error("ReceivePortName", str)
    RoutingFailureReportID = _error("RoutingFailureReportID", str)
    SendPortName = _error("SendPortName", str)


#: The value of BTS.MessageDestination with which a disassembler suspends a document (RCV-18).
SUSPEND_QUEUE = "SuspendQueue"

#: Every system property by its key.
SYSTEM_PROPERTIES: dict[str, Property] = {
    member.key: member
    for namespace in (BTS, FILE, HTTP, ErrorReport)
    for member in vars(namespace).values()
    if isinstance(member, Property)
}

#: The keys of the properties that only the engine promotes: where a message comes from, which orchestration it starts,
#: acknowledgements, and error messages. Programs, adapters, components, maps and orchestrations cannot promote them.
#: Addresses (BTS.SPID) and tokens (BTS.EpmRRCorrelationToken) are for everybody who knows their values.
ENGINE_PROPERTIES: frozenset[str] = frozenset(
    prop.key
    for prop in (
        BTS.ReceivePortID,
        BTS.ReceivePortName,
        BTS.ReceiveLocationName,
        BTS.InboundTransportLocation,
        BTS.InboundTransportType,
        BTS.InterchangeID,
        BTS.InterchangeSequenceNumber,
        BTS.IsRequestResponse,
        BTS.IsSolicitResponse,
        BTS.SPName,
        BTS.ActivationServiceID,
        BTS.HopCount,
        BTS.HopServices,
        *(member for name, member in vars(BTS).items() if name.startswith("Ack") and name != "AckRequired"),
        *(member for member in vars(ErrorReport).values() if isinstance(member, Property)),
    )
)

#: What to do about a message that promotes one of them.
ENGINE_PROPERTY_HINT = "Write the property without promoting it, or promote a property of your own."


def describe_engine_properties(promoted: Iterable[str]) -> str | None:
    """Say which of the promoted properties only the engine promotes, or return None if there are none."""
    keys = sorted(ENGINE_PROPERTIES.intersection(promoted))
    if not keys:
        return None
    names = ", ".join(dotted_name(*split_key(key)) for key in keys)
    return f"The message promotes {names}, which only the engine promotes."
