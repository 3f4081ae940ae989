import java.io.IOException;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer of numbered values, until its standard input ends, beside a NumberedGroup, which then reads
 * to the end. Lines of its output: "acknowledged NUMBER PARTITION OFFSET", "failed NUMBER ERROR", and behind the last
 * value "sent COUNT".
 *
 * Arguments: bootstrap servers, topic, number of partitions, values of a burst, pause after each burst in ms, protocol
 * of the group.
 */
public final class NumberedProducer {
    private static volatile boolean isOver = false;
    private final String bootstrap;
    private final String topic;
    private final int partitions;
    private KafkaProducer<String, String> producer;

    private NumberedProducer(String bootstrap, String topic, int partitions) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.partitions = partitions;
        producer = create();
    }

    public static void main(String[] args) throws Exception {
        Thread input = new Thread(NumberedProducer::readToEnd);
        input.setDaemon(true);
        input.start();
        NumberedProducer program = new NumberedProducer(args[0], args[1], Integer.parseInt(args[2]));
        int burst = Integer.parseInt(args[3]);
        long pause = Long.parseLong(args[4]);
        NumberedGroup group = new NumberedGroup(args[0], args[1], args[5]);
        Thread reading = new Thread(group);
        reading.start();
        int sent = 0;
        while (!isOver) {
            for (int each = 0; each < burst; each++) {
                program.send(sent++);
            }
            Thread.sleep(pause);
        }
        program.producer.close();
        say("sent " + sent);
        group.finish();
        reading.join();
    }

    private void send(int number) {
        String value = number + " " + ".".repeat((int) (number * 31L % 300));
        try {
            producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (stored, error) -> {
                if (error == null) {
                    say("acknowledged " + number + " " + stored.partition() + " " + stored.offset());
                } else {
                    fail(number, error);
                }
            });
        } catch (KafkaException error) {
            // Only a producer that is of no more use throws it; all other errors are for the callback.
            fail(number, error);
            producer.close();
            producer = create();
        }
    }

    private KafkaProducer<String, String> create() {
        return new KafkaProducer<>(Map.ofEntries(
            Map.entry("bootstrap.servers", bootstrap),
            Map.entry("acks", "all"),
            Map.entry("enable.idempotence", true),
            Map.entry("linger.ms", 2),
            Map.entry("reconnect.backoff.ms", 20),
            Map.entry("reconnect.backoff.max.ms", 200),
            Map.entry("retry.backoff.ms", 20),
            Map.entry("retry.backoff.max.ms", 200),
            Map.entry("socket.connection.setup.timeout.ms", 2000),
            Map.entry("key.serializer", StringSerializer.class),
            Map.entry("value.serializer", StringSerializer.class)));
    }

    static void fail(int number, Exception error) {
        say("failed " + number + " " + String.valueOf(error).replace('\n', ' '));
    }

    private static void readToEnd() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (IOException ended) {
            // as if it were at its end
        }
        isOver = true;
    }

    /** Write a line at once: what is acknowledged is known even if this process is killed. */
    static void say(String line) {
        synchronized (System.out) {
            System.out.print(line + "\n");
            System.out.flush();
        }
    }
}
