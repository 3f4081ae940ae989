import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidRecordStateException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own share consumer against a broker: both acknowledgement modes, both acquire modes, every type, locks that end. */
public final class ShareCompat {
    private static final int RECORDS = 300;
    private final String bootstrap;

    private ShareCompat(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        ShareCompat compat = new ShareCompat(args[0]);
        compat.shared();
        compat.everyType();
        compat.poison();
        compat.locks();
    }

    /** Two members, one of them with a strict record limit, get every record of compressed batches once. */
    private void shared() throws Exception {
        prepare("share-shared", Map.of());
        for (String codec : List.of("none", "lz4", "zstd")) {
            produce("share-shared", codec);
        }
        Map<String, Integer> seen = new TreeMap<>();
        try (KafkaShareConsumer<String, String> one = consumer("share-shared", Map.of());
             KafkaShareConsumer<String, String> other = consumer("share-shared", Map.of("share.acquire.mode", "record_limit", "max.poll.records", "7"))) {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (seen.size() < 3 * RECORDS && System.nanoTime() < end) {
                ConsumerRecords<String, String> limited = other.poll(Duration.ofMillis(100));
                check(limited.count() <= 7, "a strict limit of 7 gave " + limited.count());
                limited.forEach(record -> seen.merge(record.value(), 1, Integer::sum));
                one.poll(Duration.ofMillis(100)).forEach(record -> seen.merge(record.value(), 1, Integer::sum));
            }
            one.commitSync();
            other.commitSync();
        }
        check(seen.size() == 3 * RECORDS, "wanted " + 3 * RECORDS + " records, found " + seen.size());
        check(seen.values().stream().allMatch(count -> count == 1), "a record came twice");
        say("shared by two members", seen.size());
    }

    /** Accepted and rejected records are gone, released ones come again, renewed ones may still be accepted. */
    private void everyType() throws Exception {
        prepare("share-types", Map.of());
        produce("share-types", "none");
        Map<Long, Integer> counts = new TreeMap<>();
        List<Exception> failures = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = consumer("share-types", Map.of("share.acknowledgement.mode", "explicit"))) {
            consumer.setAcknowledgementCommitCallback((offsets, failure) -> {
                if (failure != null) {
                    failures.add(failure);
                }
            });
            int accepted = 0;
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (accepted < RECORDS * 3 / 4 && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    int times = counts.merge(record.offset(), 1, Integer::sum);
                    AcknowledgeType type = switch ((int) (record.offset() % 4)) {
                        case 0 -> AcknowledgeType.ACCEPT;
                        case 1 -> times == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                        case 2 -> AcknowledgeType.REJECT;
                        default -> times == 1 ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
                    };
                    consumer.acknowledge(record, type);
                    accepted += type == AcknowledgeType.ACCEPT ? 1 : 0;
                    if (type == AcknowledgeType.ACCEPT && record.offset() % 4 == 1) {
                        check(record.deliveryCount().orElse((short) 0) == 2, "a released record came with delivery count " + record.deliveryCount());
                    }
                }
                consumer.commitSync().values().forEach(failure -> failure.ifPresent(failures::add));
            }
            check(accepted == RECORDS * 3 / 4, "accepted " + accepted);
            check(consumer.poll(Duration.ofMillis(300)).isEmpty(), "something came that was finished");
        }
        check(failures.isEmpty(), "acknowledgements failed: " + failures);
        say("accepted, released, rejected and renewed", counts.size());
    }

    /** A record that is always released is delivered to the group's limit, and holds up nobody. */
    private void poison() throws Exception {
        prepare("share-poison", Map.of("share.delivery.count.limit", "3"));
        produce("share-poison", "none");
        int poisoned = 0;
        int accepted = 0;
        try (KafkaShareConsumer<String, String> consumer = consumer("share-poison", Map.of("share.acknowledgement.mode", "explicit"))) {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            int idle = 0;
            while ((poisoned < 3 || accepted < RECORDS - 1 || idle < 2) && System.nanoTime() < end) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(300));
                idle = records.isEmpty() ? idle + 1 : 0;
                for (ConsumerRecord<String, String> record : records) {
                    boolean isPoison = record.offset() == 42;
                    consumer.acknowledge(record, isPoison ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    poisoned += isPoison ? 1 : 0;
                    accepted += isPoison ? 0 : 1;
                }
                consumer.commitSync();
            }
        }
        check(poisoned == 3, "a record with a limit of 3 was delivered " + poisoned + " times");
        check(accepted == RECORDS - 1, "accepted " + accepted);
        say("delivered to the limit", poisoned);
    }

    /** Who is too late is told so, and the record goes to another. */
    private void locks() throws Exception {
        prepare("share-locks", Map.of("share.record.lock.duration.ms", "1000"));
        produce("share-locks", "none");
        try (KafkaShareConsumer<String, String> slow = consumer("share-locks", Map.of("share.acknowledgement.mode", "explicit"));
             KafkaShareConsumer<String, String> quick = consumer("share-locks", Map.of())) {
            ConsumerRecords<String, String> held = next(slow);
            check(slow.acquisitionLockTimeoutMs().orElse(0) == 1000, "the lock lasts " + slow.acquisitionLockTimeoutMs());
            Thread.sleep(1300);
            int again = 0;
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (again < held.count() && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : quick.poll(Duration.ofMillis(300))) {
                    again += record.deliveryCount().orElse((short) 0) == 2 ? 1 : 0;
                }
            }
            check(again == held.count(), "of " + held.count() + " records " + again + " came again");
            held.forEach(slow::acknowledge);
            for (Map.Entry<TopicIdPartition, Optional<KafkaException>> outcome : slow.commitSync().entrySet()) {
                check(outcome.getValue().orElse(null) instanceof InvalidRecordStateException, "too late, and told " + outcome);
            }
            say("came to another member when their time was over", again);
        }
    }

    private static ConsumerRecords<String, String> next(KafkaShareConsumer<String, String> consumer) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (System.nanoTime() < end) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
            if (!records.isEmpty()) {
                return records;
            }
        }
        throw new AssertionError("no records came");
    }

    /** A topic with one partition, and a group of the same name that reads it from the beginning. */
    private void prepare(String name, Map<String, String> configs) throws Exception {
        Map<String, String> all = new HashMap<>(configs);
        all.put("share.auto.offset.reset", "earliest");
        List<AlterConfigOp> changes = new ArrayList<>();
        all.forEach((key, value) -> changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get(30, TimeUnit.SECONDS);
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, name), changes))
                .all().get(30, TimeUnit.SECONDS);
        }
    }

    private void produce(String topic, String codec) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", "20"));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(topic, codec + i, codec + i));
            }
            producer.flush();
        }
    }

    private KafkaShareConsumer<String, String> consumer(String name, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", name);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(name));
        return consumer;
    }

    private static void check(boolean isTrue, String otherwise) {
        if (!isTrue) {
            throw new AssertionError(otherwise);
        }
    }

    private static void say(String what, int count) {
        System.out.println("java: " + what + ": " + count);
    }
}
