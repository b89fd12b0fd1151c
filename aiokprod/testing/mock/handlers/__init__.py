"""The APIs a mock broker serves: one table, from API key to request type and handler."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.mock.handlers.api import AnyApi, Api
from aiokprod.testing.mock.handlers.api_versions import api_versions
from aiokprod.testing.mock.handlers.configs import (
    describe_configs,
    describe_configs_items,
    incremental_alter_configs,
    incremental_alter_configs_items,
)
from aiokprod.testing.mock.handlers.consumer_groups import consumer_group_describe, consumer_group_heartbeat
from aiokprod.testing.mock.handlers.coordinators import find_coordinator
from aiokprod.testing.mock.handlers.delete_records import delete_records, delete_records_items
from aiokprod.testing.mock.handlers.fetch import fetch, fetch_items
from aiokprod.testing.mock.handlers.group_admin import delete_groups, describe_groups, list_groups, offset_delete
from aiokprod.testing.mock.handlers.group_members import heartbeat, join_group, leave_group, sync_group
from aiokprod.testing.mock.handlers.list_offsets import list_offsets, list_offsets_items
from aiokprod.testing.mock.handlers.metadata import describe_cluster, metadata, metadata_items
from aiokprod.testing.mock.handlers.offset_fetch import offset_fetch
from aiokprod.testing.mock.handlers.offsets import (
    offset_commit,
    offset_commit_items,
    txn_offset_commit,
    txn_offset_commit_items,
)
from aiokprod.testing.mock.handlers.produce import produce, produce_items
from aiokprod.testing.mock.handlers.producer_ids import init_producer_id
from aiokprod.testing.mock.handlers.sasl import sasl_authenticate, sasl_handshake
from aiokprod.testing.mock.handlers.telemetry import get_telemetry_subscriptions, push_telemetry
from aiokprod.testing.mock.handlers.topics import (
    create_partitions,
    create_partitions_items,
    create_topics,
    create_topics_items,
    delete_topics,
    delete_topics_items,
)
from aiokprod.testing.mock.handlers.transaction_admin import describe_transactions, list_transactions
from aiokprod.testing.mock.handlers.transaction_logs import (
    describe_producers,
    describe_producers_items,
    write_txn_markers,
    write_txn_markers_items,
)
from aiokprod.testing.mock.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_items,
    add_partitions_to_txn,
    end_txn,
)
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from aiokprod.wire.messages.api_versions import ApiVersionsRequest
from aiokprod.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aiokprod.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokprod.wire.messages.create_partitions import CreatePartitionsRequest
from aiokprod.wire.messages.create_topics import CreateTopicsRequest
from aiokprod.wire.messages.delete_groups import DeleteGroupsRequest
from aiokprod.wire.messages.delete_records import DeleteRecordsRequest
from aiokprod.wire.messages.delete_topics import DeleteTopicsRequest
from aiokprod.wire.messages.describe_cluster import DescribeClusterRequest
from aiokprod.wire.messages.describe_configs import DescribeConfigsRequest
from aiokprod.wire.messages.describe_groups import DescribeGroupsRequest
from aiokprod.wire.messages.describe_producers import DescribeProducersRequest
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest
from aiokprod.wire.messages.end_txn import EndTxnRequest
from aiokprod.wire.messages.fetch import FetchRequest
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokprod.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aiokprod.wire.messages.heartbeat import HeartbeatRequest
from aiokprod.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest
from aiokprod.wire.messages.join_group import JoinGroupRequest
from aiokprod.wire.messages.leave_group import LeaveGroupRequest
from aiokprod.wire.messages.list_groups import ListGroupsRequest
from aiokprod.wire.messages.list_offsets import ListOffsetsRequest
from aiokprod.wire.messages.list_transactions import ListTransactionsRequest
from aiokprod.wire.messages.metadata import MetadataRequest
from aiokprod.wire.messages.offset_commit import OffsetCommitRequest
from aiokprod.wire.messages.offset_delete import OffsetDeleteRequest
from aiokprod.wire.messages.offset_fetch import OffsetFetchRequest
from aiokprod.wire.messages.produce import ProduceRequest
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest
from aiokprod.wire.messages.sync_group import SyncGroupRequest
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from aiokprod.wire.messages.write_txn_markers import WriteTxnMarkersRequest

_TABLE: Final[tuple[AnyApi, ...]] = (
    # Produce 0..2 is advertised and closes the connection. broker: 13.6
    Api(ProduceRequest, produce, produce_items, advertised_from=0),
    Api(FetchRequest, fetch, fetch_items),
    Api(ListOffsetsRequest, list_offsets, list_offsets_items),
    Api(MetadataRequest, metadata, metadata_items),
    Api(OffsetCommitRequest, offset_commit, offset_commit_items),
    Api(OffsetFetchRequest, offset_fetch),
    Api(FindCoordinatorRequest, find_coordinator),
    Api(JoinGroupRequest, join_group),
    Api(HeartbeatRequest, heartbeat),
    Api(LeaveGroupRequest, leave_group),
    Api(SyncGroupRequest, sync_group),
    Api(DescribeGroupsRequest, describe_groups),
    Api(ListGroupsRequest, list_groups),
    Api(SaslHandshakeRequest, sasl_handshake),
    Api(ApiVersionsRequest, api_versions),
    Api(CreateTopicsRequest, create_topics, create_topics_items),
    Api(DeleteTopicsRequest, delete_topics, delete_topics_items),
    Api(DeleteRecordsRequest, delete_records, delete_records_items),
    # InitProducerId v6 is unstable and not advertised. broker: 11.8
    Api(InitProducerIdRequest, init_producer_id, highest=5),
    Api(DescribeConfigsRequest, describe_configs, describe_configs_items),
    Api(AddPartitionsToTxnRequest, add_partitions_to_txn, add_partitions_items),
    Api(AddOffsetsToTxnRequest, add_offsets_to_txn),
    Api(EndTxnRequest, end_txn),
    Api(TxnOffsetCommitRequest, txn_offset_commit, txn_offset_commit_items),
    Api(DescribeTransactionsRequest, describe_transactions),
    Api(DescribeProducersRequest, describe_producers, describe_producers_items),
    Api(WriteTxnMarkersRequest, write_txn_markers, write_txn_markers_items),
    Api(ListTransactionsRequest, list_transactions),
    Api(SaslAuthenticateRequest, sasl_authenticate),
    Api(CreatePartitionsRequest, create_partitions, create_partitions_items),
    Api(DeleteGroupsRequest, delete_groups),
    Api(IncrementalAlterConfigsRequest, incremental_alter_configs, incremental_alter_configs_items),
    Api(OffsetDeleteRequest, offset_delete),
    Api(DescribeClusterRequest, describe_cluster),
    Api(ConsumerGroupHeartbeatRequest, consumer_group_heartbeat),
    Api(ConsumerGroupDescribeRequest, consumer_group_describe),
    Api(GetTelemetrySubscriptionsRequest, get_telemetry_subscriptions),
    Api(PushTelemetryRequest, push_telemetry),
)

APIS: Final[dict[int, AnyApi]] = {api.key: api for api in _TABLE}
