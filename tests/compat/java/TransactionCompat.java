import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions that the broker or an administrator ends before their producer does (KIP-664, KIP-890). */
public final class TransactionCompat {
    private static final String TOPIC = "java-ended";
    private static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);
    private final String bootstrap;
    private final Admin admin;

    private TransactionCompat(String bootstrap, Admin admin) {
        this.bootstrap = bootstrap;
        this.admin = admin;
    }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all().get(30, TimeUnit.SECONDS);
            TransactionCompat compat = new TransactionCompat(args[0], admin);
            compat.abortsAfterTheTimeout();
            compat.commitsAfterTheTimeout();
            compat.isAbortedByAnAdministrator();
        }
    }

    /** The producer aborts what the broker aborted already, and goes on. */
    private void abortsAfterTheTimeout() throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-late-abort", 1000)) {
            producer.initTransactions();
            for (int round = 0; round < 2; round++) {
                send(producer);
                untilEnded("java-late-abort");
                producer.abortTransaction();
                send(producer);
                producer.commitTransaction();
            }
        }
        say("goes on after a timeout");
    }

    private void commitsAfterTheTimeout() throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-late-commit", 1000)) {
            producer.initTransactions();
            send(producer);
            untilEnded("java-late-commit");
            try {
                producer.commitTransaction();
                throw new AssertionError("a transaction that timed out was committed");
            } catch (KafkaException late) {
                boolean isState = late instanceof InvalidTxnStateException || late.getCause() instanceof InvalidTxnStateException;
                check(isState, "a late commit fails with " + late + ", not with INVALID_TXN_STATE");
            }
        }
        say("a late commit is INVALID_TXN_STATE");
    }

    private void isAbortedByAnAdministrator() throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-aborted", 600_000)) {
            producer.initTransactions();
            send(producer);
            check(stableEnd() < end(), "an open transaction does not hold readers of committed records");
            ProducerState open = admin.describeProducers(List.of(PARTITION)).partitionResult(PARTITION).get(30, TimeUnit.SECONDS)
                .activeProducers().stream().filter(each -> each.currentTransactionStartOffset().isPresent()).findFirst().orElseThrow();
            admin.abortTransaction(new AbortTransactionSpec(
                PARTITION, open.producerId(), (short) open.producerEpoch(), open.coordinatorEpoch().orElse(0))).all().get(30, TimeUnit.SECONDS);
            untilEnded("java-aborted");
            check(stableEnd() == end(), "the aborted transaction still holds readers of committed records");
            producer.abortTransaction();
        }
        say("aborted by an administrator");
    }

    private void send(KafkaProducer<String, String> producer) throws Exception {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(TOPIC, "value")).get(30, TimeUnit.SECONDS);
    }

    private void untilEnded(String id) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (admin.describeTransactions(List.of(id)).description(id).get(30, TimeUnit.SECONDS).state() != TransactionState.COMPLETE_ABORT) {
            check(System.nanoTime() < until, "the transaction of " + id + " is not aborted");
            Thread.sleep(100);
        }
    }

    private long end() throws Exception {
        return offset(IsolationLevel.READ_UNCOMMITTED);
    }

    private long stableEnd() throws Exception {
        return offset(IsolationLevel.READ_COMMITTED);
    }

    private long offset(IsolationLevel level) throws Exception {
        return admin.listOffsets(Map.of(PARTITION, OffsetSpec.latest()), new ListOffsetsOptions(level))
            .partitionResult(PARTITION).get(30, TimeUnit.SECONDS).offset();
    }

    private KafkaProducer<String, String> producer(String id, int timeoutMs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", timeoutMs);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void say(String what) {
        System.out.println("java transactions: " + what);
    }
}
