import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own Java clients against a broker: every compression, both group protocols, transactions. */
public final class Compat {
    private static final int RECORDS = 500;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private final String bootstrap;

    private Compat(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        Compat compat = new Compat(args[0]);
        compat.createTopics();
        compat.produce();
        compat.consume("classic");
        compat.consume("consumer");
        compat.transactions();
    }

    private void createTopics() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic("java", 3, (short) 1), new NewTopic("java-transactions", 1, (short) 1)))
                .all().get(30, TimeUnit.SECONDS);
        }
    }

    private void produce() throws Exception {
        for (String codec : CODECS) {
            try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", codec, "linger.ms", "20"))) {
                for (int i = 0; i < RECORDS; i++) {
                    producer.send(new ProducerRecord<>("java", codec + i, codec + i));
                }
                producer.flush();
            }
        }
        say("produced", CODECS.size() * RECORDS);
    }

    private void consume(String protocol) {
        try (KafkaConsumer<String, String> consumer = consumer("java-" + protocol, Map.of("group.protocol", protocol))) {
            consumer.subscribe(List.of("java"));
            List<String> found = values(consumer, CODECS.size() * RECORDS);
            consumer.commitSync();
            check(found.stream().distinct().count() == CODECS.size() * RECORDS, "group protocol " + protocol + " lost or repeated records");
            say("consumed with group protocol " + protocol, found.size());
        }
    }

    private void transactions() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", "java-transactions"))) {
            producer.initTransactions();
            for (String outcome : List.of("kept", "dropped", "kept")) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) {
                    producer.send(new ProducerRecord<>("java-transactions", outcome));
                }
                try (KafkaConsumer<String, String> source = consumer("java-transactions-source", Map.of())) {
                    producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition("java", 0), new OffsetAndMetadata(outcome.length())), source.groupMetadata());
                    if (outcome.equals("kept")) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer("java-committed", Map.of("isolation.level", "read_committed"))) {
            consumer.subscribe(List.of("java-transactions"));
            List<String> found = values(consumer, 20);
            check(found.stream().allMatch("kept"::equals), "an aborted record reached a read_committed reader");
            say("read as committed", found.size());
        }
    }

    private static List<String> values(KafkaConsumer<String, String> consumer, int wanted) {
        List<String> found = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (found.size() < wanted && System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                found.add(record.value());
            }
        }
        check(found.size() == wanted, "wanted " + wanted + " records, found " + found.size());
        return found;
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        return new KafkaProducer<>(with(more), new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Map<String, Object> config = with(more);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private Map<String, Object> with(Map<String, Object> more) {
        Map<String, Object> config = new java.util.HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void say(String what, int count) {
        System.out.println("java: " + what + ": " + count);
    }
}
