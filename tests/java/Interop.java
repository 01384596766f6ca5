import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * Pulsar's own Java client as a program, for tests of another client.
 *
 *   produce URL TOPIC N [options]      sends N messages, prints each as it was sent
 *   consume URL TOPIC SUB N [options]  receives and acknowledges N, from the earliest on, prints each
 *   partitions URL TOPIC [options]     reads JSON strings from stdin, a key a line; prints the partition of each
 *
 * Several commands may follow each other, separated by --then: a JVM takes seconds to start. Every line on stdout is a
 * JSON object, and consume prints a message exactly as produce does. Exit code 3: a message did not come in time.
 */
public class Interop {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        var rest = List.of(arguments);
        int exit = 0;
        while (exit == 0 && !rest.isEmpty()) {
            int end = rest.indexOf("--then");
            exit = run(end < 0 ? rest : rest.subList(0, end));
            rest = end < 0 ? List.of() : rest.subList(end + 1, rest.size());
        }
        System.exit(exit); // threads of the client may linger
    }

    private static int run(List<String> arguments) throws Exception {
        var positional = new ArrayList<String>();
        var options = new TreeMap<String, String>();
        for (int i = 0; i < arguments.size(); i++) {
            if (!arguments.get(i).startsWith("--")) {
                positional.add(arguments.get(i));
            } else if (i + 1 < arguments.size() && !arguments.get(i + 1).startsWith("--")) {
                options.put(arguments.get(i).substring(2), arguments.get(++i));
            } else {
                options.put(arguments.get(i).substring(2), "true");
            }
        }
        var command = positional.remove(0);
        var builder = PulsarClient.builder().serviceUrl(positional.remove(0));
        if (options.containsKey("token")) {
            builder.authentication(AuthenticationFactory.token(options.get("token")));
        }
        if (options.containsKey("trust")) {
            builder.tlsTrustCertsFilePath(options.get("trust")).enableTlsHostnameVerification(true);
        }
        try (var client = builder.build()) {
            switch (command) {
                case "produce" -> produce(client, positional, options);
                case "consume" -> {
                    return consume(client, positional, options);
                }
                case "partitions" -> partitions(client, positional, options);
                default -> throw new IllegalArgumentException(command);
            }
        }
        return 0;
    }

    // --compression NONE|LZ4|ZLIB|ZSTD|SNAPPY  --batch true|false  --size BYTES  --keys  --key-bytes
    // --ordering-keys  --properties  --event-time  --null-values  --name PRODUCER  --chunking
    private static void produce(PulsarClient client, List<String> positional, Map<String, String> options)
            throws Exception {
        int count = Integer.parseInt(positional.get(1));
        int size = Integer.parseInt(options.getOrDefault("size", "0"));
        boolean batch = flag(options, "batch");
        var builder = client.newProducer(Schema.BYTES).topic(positional.get(0))
                .compressionType(CompressionType.valueOf(options.getOrDefault("compression", "NONE")))
                .enableBatching(batch && !flag(options, "chunking"))
                .enableChunking(flag(options, "chunking"))
                .batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS)
                .blockIfQueueFull(true);
        if (batch && flag(options, "keys")) {
            builder.batcherBuilder(BatcherBuilder.KEY_BASED);
        }
        if (options.containsKey("name")) {
            builder.producerName(options.get("name"));
        }
        try (var producer = builder.create()) {
            var lines = new ArrayList<ObjectNode>();
            var ids = new ArrayList<CompletableFuture<MessageId>>();
            for (int i = 0; i < count; i++) {
                var line = JSON.createObjectNode();
                lines.add(line);
                ids.add(message(producer, i, size, options, line).sendAsync());
            }
            producer.flush();
            for (int i = 0; i < count; i++) {
                putId(lines.get(i), ids.get(i).get());
                lines.get(i).put("producerName", producer.getProducerName());
                OUT.println(lines.get(i));
            }
        }
    }

    /** Message number i, and the same in JSON. Texts leave ASCII on purpose. */
    private static TypedMessageBuilder<byte[]> message(Producer<byte[]> producer, int i, int size,
            Map<String, String> options, ObjectNode line) {
        var message = producer.newMessage();
        line.put("sequenceId", i).put("redeliveryCount", 0);
        message.sequenceId(i);
        if (flag(options, "null-values") && i % 2 == 1) {
            line.put("payload", "").put("nullValue", true);
            message.value(null);
        } else {
            var text = new StringBuilder("message " + i + " ☂");
            while (text.length() < size) {
                text.append((char) ('a' + (text.length() * 7 + i) % 26));
            }
            var payload = text.toString().getBytes(StandardCharsets.UTF_8);
            line.put("payload", HEX.formatHex(payload)).put("nullValue", false);
            message.value(payload);
        }
        if (flag(options, "key-bytes")) {
            var key = new byte[] {0, (byte) 255, (byte) (i % 7)};
            line.put("key", HEX.formatHex(key)).put("keyIsBytes", true);
            message.keyBytes(key);
        } else if (flag(options, "keys")) {
            var key = "clé-" + i % 7;
            line.put("key", HEX.formatHex(key.getBytes(StandardCharsets.UTF_8))).put("keyIsBytes", false);
            message.key(key);
        } else {
            line.putNull("key").put("keyIsBytes", false);
        }
        if (flag(options, "ordering-keys")) {
            var key = new byte[] {(byte) (i % 5), 0, (byte) 200};
            line.put("orderingKey", HEX.formatHex(key));
            message.orderingKey(key);
        } else {
            line.putNull("orderingKey");
        }
        var properties = line.putObject("properties");
        if (flag(options, "properties")) {
            for (var entry : Map.of("number", "" + i, "название", "значение " + i, "empty", "").entrySet()) {
                properties.put(entry.getKey(), entry.getValue());
                message.property(entry.getKey(), entry.getValue());
            }
        }
        long eventTime = flag(options, "event-time") ? 1_700_000_000_000L + i : 0;
        line.put("eventTime", eventTime);
        if (eventTime != 0) {
            message.eventTime(eventTime);
        }
        return message;
    }

    // --type Exclusive|Failover|Shared|Key_Shared  --seconds N (to wait for each message)  --keep (no acknowledgement)
    private static int consume(PulsarClient client, List<String> positional, Map<String, String> options)
            throws Exception {
        int count = Integer.parseInt(positional.get(2));
        int seconds = Integer.parseInt(options.getOrDefault("seconds", "20"));
        try (var consumer = client.newConsumer(Schema.BYTES).topic(positional.get(0))
                .subscriptionName(positional.get(1))
                .subscriptionType(SubscriptionType.valueOf(options.getOrDefault("type", "Exclusive")))
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            for (int i = 0; i < count; i++) {
                var message = consumer.receive(seconds, TimeUnit.SECONDS);
                if (message == null) {
                    System.err.println("message " + i + " of " + count + " did not come within " + seconds + " s");
                    return 3;
                }
                OUT.println(describe(message));
                if (!flag(options, "keep")) {
                    consumer.acknowledge(message);
                }
            }
        }
        return 0;
    }

    private static ObjectNode describe(Message<byte[]> message) {
        var line = JSON.createObjectNode();
        line.put("sequenceId", message.getSequenceId()).put("redeliveryCount", message.getRedeliveryCount());
        boolean isNull = message.getValue() == null;
        line.put("payload", isNull ? "" : HEX.formatHex(message.getData())).put("nullValue", isNull);
        line.put("key", message.hasKey() ? HEX.formatHex(message.getKeyBytes()) : null);
        line.put("keyIsBytes", message.hasBase64EncodedKey());
        line.put("orderingKey", message.hasOrderingKey() ? HEX.formatHex(message.getOrderingKey()) : null);
        var properties = line.putObject("properties");
        message.getProperties().forEach(properties::put);
        line.put("eventTime", message.getEventTime()).put("publishTime", message.getPublishTime());
        line.put("producerName", message.getProducerName()).put("topic", message.getTopicName());
        putId(line, message.getMessageId());
        return line;
    }

    // --hash JavaStringHash|Murmur3_32Hash
    private static void partitions(PulsarClient client, List<String> positional, Map<String, String> options)
            throws Exception {
        try (var producer = client.newProducer(Schema.BYTES).topic(positional.get(0))
                .hashingScheme(HashingScheme.valueOf(options.getOrDefault("hash", "JavaStringHash")))
                .blockIfQueueFull(true)
                .create();
                var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            var ids = new ArrayList<CompletableFuture<MessageId>>();
            for (var line = input.readLine(); line != null; line = input.readLine()) {
                ids.add(producer.newMessage().key(JSON.readValue(line, String.class)).value(new byte[0]).sendAsync());
            }
            producer.flush();
            for (var id : ids) {
                var line = JSON.createObjectNode();
                putId(line, id.get());
                OUT.println(line);
            }
        }
    }

    private static void putId(ObjectNode line, MessageId id) {
        var inner = (MessageIdAdv) id;
        line.putObject("messageId").put("ledgerId", inner.getLedgerId()).put("entryId", inner.getEntryId())
                .put("partition", inner.getPartitionIndex()).put("batchIndex", inner.getBatchIndex())
                .put("batchSize", inner.getBatchSize());
    }

    private static boolean flag(Map<String, String> options, String name) {
        return options.getOrDefault(name, "false").equals("true");
    }
}
