"""Sample files: the four legacy kinds, and one with all sections."""

from __future__ import annotations

CLUSTERS = """\
stage:
  main:
    clientId: "shop-indexer"
    brokers:
      main-1.example,
      main-2.example,
    version: "2.2.0"
    errorConfig:
      groupId: "shop.indexer.error"
      cron: "0 */5 * * *"
      maxErrorCount: 3
      closeConsumerWhenThereIsNoMessage: "10m"
      closeConsumerWhenMessageIsNew: "20m"
      maxProcessingTime: "10s"
    producerConfig:
      requiredAcks: "WaitForLocal"
      timeout: "5s"
  guarded:
    clientId: "shop-indexer"
    brokers:
      guarded-1.example:9094,
      guarded-2.example:9094,
    version: "2.8.0"
    errorConfig:
      groupId: "shop.indexer.error"
      cron: "@every 90m"
    auth:
      username: "indexer"
      password: "correct horse"
      certificates:
        - "ca.pem"
live:
  main:
    clientId: live
    brokers: "live.example:9092"
    version: "3.9.0"
"""

CONSUMERS = """\
single:
  groupId: shop.indexer.single
  name: shop.orders.0
  retry: shop.orders.0.single.retry
  error: shop.orders.0.error
  maxProcessingTime: "1s"
  retryCount: 3
  cluster: "main"
  virtualPartitionCount: 10
batchConsumer:
  groupId: shop.indexer.batch
  name: shop.orders.0
  retry: shop.orders.0.batch.retry
  error: shop.orders.0.error
  retryCount: 3
  cluster: "Guarded"
  virtualPartitionCount: 10
  batchSize: 30
  consumeBatchListenerLatency: "2s"
uniqueConsumer:
  groupId: shop.indexer.unique
  name: shop.orders.0
  retry: shop.orders.0.unique.retry
  error: shop.orders.0.error
  retryCount: 3
  cluster: "guarded"
  virtualPartitionCount: 10
  batchSize: 30
  uniqueListener: true
"""

PRODUCERS = """\
orderIndexed:
  name: shop.order.indexed.0
  cluster: "main"
"""

SHOVELS = """\
parcels:
  groupId: shop.parcels.shovel
  topics:
    - shop.parcels.0.error
    - shop.parcels.1.error
  cron: "@hourly"
  maxErrorCount: 2
  cluster: main
  targetTopic: shop.parcels.0.retry
"""

WHOLE = """\
clusters:
  main:
    clientId: shop
    brokers: ["${HOST:-localhost}:9092"]
    properties:
      linger.ms: 20
      client.rack: r1
consumers:
  orders.eu:
    groupId: shop
    name: orders
    retry: orders.retry
    error: orders.error
    cluster: MAIN
    virtualPartitionCount: 20
    groupProtocol: classic
    sessionTimeout: 30s
    heartbeatInterval: 5s
    retryBackoff: {kind: exponential, delay: 500ms, maximum: 1m, multiplier: 1.5, jitter: 20%}
    retryOrder: key
    orderBy: key
    laneHash: murmur2
    maxInFlightBytes: 64mb
    errorBreaker: {share: 50%, window: 2m, minimum: 20}
    ack: manual
    laneClasses: {slow: 5, Bulk: 2}
    commitInterval: 250ms
    processes: 2
    properties:
      group.instance.id: shop-1
producers:
  indexed: {name: indexed, cluster: main}
errorConsumers:
  again: {groupId: again, topics: [orders.error], cron: "CRON_TZ=Europe/Berlin 30 3 * * *",
    maxErrorCount: 1, cluster: main}
profiles:
  stage:
    clusters:
      main:
        brokers: stage.example
        properties: {client.rack: }
    consumers:
      ORDERS.EU:
        virtualPartitionCount: 4
        retryBackoff: {jitter: 0}
  empty:
"""
