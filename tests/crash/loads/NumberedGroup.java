import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The only member of a group, which reads the topic of NumberedProducer and commits what it has read. Lines of its
 * output: "read NUMBER PARTITION OFFSET", and "failed PARTITION ERROR" if an offset is missing, comes out of order, or
 * comes again though its commit was confirmed, or the client gives up.
 */
final class NumberedGroup implements Runnable, ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration PATIENCE = Duration.ofSeconds(5);
    private final KafkaConsumer<String, String> consumer;
    private final String topic;
    /** The offset behind the last one that was read. */
    private final Map<TopicPartition, Long> next = new HashMap<>();
    /** The offset of the last confirmed commit. */
    private final Map<TopicPartition, Long> committed = new HashMap<>();
    /** Partitions of which nothing was read since they were assigned: they go on from a commit. */
    private final Set<TopicPartition> fresh = new HashSet<>();
    private volatile boolean isLast = false;

    NumberedGroup(String bootstrap, String topic, String protocol) {
        this.topic = topic;
        Map<String, Object> options = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", topic + "-readers",
            "group.protocol", protocol,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "reconnect.backoff.ms", 20,
            "reconnect.backoff.max.ms", 200,
            "socket.connection.setup.timeout.ms", 2000,
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class));
        if (protocol.equals("classic")) {
            options.put("session.timeout.ms", 6000);
            options.put("heartbeat.interval.ms", 500);
        }
        consumer = new KafkaConsumer<>(options);
    }

    /** Read to the end of the topic, and end: nothing is published any more. */
    void finish() {
        isLast = true;
    }

    @Override
    public void run() {
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            while (!isLast || !isAtEnd()) {
                ConsumerRecords<String, String> found = consumer.poll(POLL);
                found.forEach(this::read);
                if (!found.isEmpty()) {
                    commit();
                }
            }
        } catch (KafkaException error) {
            NumberedProducer.fail(-1, error);
        }
    }

    private void read(ConsumerRecord<String, String> record) {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        long offset = record.offset();
        long expected = next.getOrDefault(partition, 0L);
        long earliest = fresh.remove(partition) ? committed.getOrDefault(partition, 0L) : expected;
        if (offset > expected || offset < earliest) {
            String problem = "offset " + offset + " came instead of " + earliest + " to " + expected;
            NumberedProducer.fail(record.partition(), new KafkaException(problem));
        }
        next.put(partition, offset + 1);
        String number = record.value().split(" ", 2)[0];
        NumberedProducer.say("read " + number + " " + record.partition() + " " + offset);
    }

    private void commit() {
        Map<TopicPartition, Long> positions = new HashMap<>(next);
        positions.keySet().removeAll(fresh);
        try {
            consumer.commitSync(PATIENCE);
        } catch (RetriableException | CommitFailedException unknown) {
            return; // another owner may have it, or not
        }
        committed.putAll(positions);
    }

    private boolean isAtEnd() {
        try {
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment(), PATIENCE);
            return !ends.isEmpty()
                && ends.entrySet().stream().allMatch(end -> next.getOrDefault(end.getKey(), 0L) >= end.getValue());
        } catch (RetriableException away) {
            return false;
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        fresh.addAll(partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        // What was read is committed before the next poll.
    }
}
