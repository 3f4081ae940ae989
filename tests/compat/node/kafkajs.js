// Drives a broker with KafkaJS: administration, an idempotent producer, transactions, a consumer group, resetting its offsets.
const assert = require('node:assert/strict')
const { CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const TOPIC = 'node'
const GROUP = 'node-group'
const BATCHES = 20
const MESSAGES = 50
const createPartitioner = Partitioners.DefaultPartitioner

async function createTopic(admin) {
  const configEntries = [{ name: 'retention.ms', value: '100000000' }]
  const topics = [{ topic: TOPIC, numPartitions: 3, configEntries }]
  assert.equal(await admin.createTopics({ topics, waitForLeaders: true }), true)
  assert.equal(await admin.createTopics({ topics }), false)
}

async function produce(kafka) {
  const producer = kafka.producer({ createPartitioner, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let batch = 0; batch < BATCHES; batch++) {
    const compression = batch % 2 ? CompressionTypes.GZIP : CompressionTypes.None
    const messages = Array.from({ length: MESSAGES }, (_, n) => ({
      key: `key-${n}`,
      value: `${batch} ${n}`,
      headers: { origin: 'kafkajs' },
    }))
    await producer.send({ topic: TOPIC, compression, acks: -1, messages })
  }
  await producer.disconnect()
}

async function transact(kafka) {
  const producer = kafka.producer({
    createPartitioner,
    transactionalId: 'node-transactions',
    idempotent: true,
    maxInFlightRequests: 1,
  })
  await producer.connect()
  const offsets = { consumerGroupId: GROUP, topics: [{ topic: TOPIC, partitions: [{ partition: 0, offset: '0' }] }] }
  const good = await producer.transaction()
  await good.send({ topic: TOPIC, messages: [{ value: 'committed' }] })
  await good.sendOffsets(offsets)
  await good.commit()
  const bad = await producer.transaction()
  await bad.send({ topic: TOPIC, messages: [{ value: 'aborted' }] })
  await bad.abort()
  await producer.disconnect()
}

async function consume(kafka) {
  const consumer = kafka.consumer({ groupId: GROUP })
  const wanted = BATCHES * MESSAGES + 1
  const values = []
  await consumer.connect()
  await consumer.subscribe({ topics: [TOPIC], fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer
      .run({
        eachMessage: async ({ message }) => {
          values.push(message.value.toString())
          if (values.length === wanted) resolve()
        },
      })
      .catch(reject)
  })
  await consumer.disconnect()
  assert.equal(new Set(values).size, wanted)
  assert.ok(values.includes('committed') && !values.includes('aborted'))
  return wanted
}

async function administer(admin) {
  const group = (await admin.describeGroups([GROUP])).groups[0]
  assert.equal(group.state, 'Empty')
  const resource = { type: ConfigResourceTypes.TOPIC, name: TOPIC }
  const configEntries = [{ name: 'retention.ms', value: '999999' }]
  await admin.alterConfigs({ resources: [{ ...resource, configEntries }] })
  const described = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
  assert.equal(described.resources[0].configEntries[0].configValue, '999999')
  await admin.resetOffsets({ groupId: GROUP, topic: TOPIC, earliest: true })
  const [reset] = await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC] })
  assert.deepEqual([...new Set(reset.partitions.map((each) => each.offset))], ['-2'])
  await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC], resolveOffsets: true })
  const [resolved] = await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC] })
  assert.deepEqual([...new Set(resolved.partitions.map((each) => each.offset))], ['0'])
  await admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: 5 }] })
  await admin.deleteTopicRecords({ topic: TOPIC, partitions: [{ partition: 0, offset: '3' }] })
  const low = (await admin.fetchTopicOffsets(TOPIC)).find((each) => each.partition === 0).low
  assert.equal(low, '3')
  await admin.deleteGroups([GROUP])
  await admin.deleteTopics({ topics: [TOPIC] })
  assert.ok(!(await admin.listTopics()).includes(TOPIC))
}

async function main() {
  const kafka = new Kafka({ clientId: 'compat', brokers: [process.argv[2]], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await createTopic(admin)
  await produce(kafka)
  await transact(kafka)
  console.log(`node: KafkaJS read ${await consume(kafka)} messages, committed ones only`)
  await administer(admin)
  await admin.disconnect()
}

main().catch((error) => {
  console.error('node:', error)
  process.exit(1)
})
