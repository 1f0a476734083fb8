// Drives parallel-consumer as `bench.lane.ours` drives lanes: settings as name=value, counts as lines of JSON.

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.PollContext;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.URL;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;

public final class ParallelLanes {
    private static final String KAFKA = "kafka.";
    private static final AtomicLong began = new AtomicLong();
    private static final AtomicLong handled = new AtomicLong();
    private static final CountDownLatch never = new CountDownLatch(1);

    private final Map<String, String> settings;
    private final int batch;
    private final long latencyMillis;
    private final long drain;
    private final String work;
    private final String hungKey;
    private final URL service;

    private ParallelLanes(Map<String, String> settings) throws IOException {
        this.settings = settings;
        batch = Integer.parseInt(settings.get("batch"));
        latencyMillis = Math.round(Double.parseDouble(settings.get("latency")) * 1_000);
        drain = Long.parseLong(settings.get("drain"));
        work = settings.get("work");
        hungKey = settings.get("hung_key");
        service = new URL("http://127.0.0.1:" + settings.get("port") + "/");
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            settings.put(argument.substring(0, at), argument.substring(at + 1));
        }
        new ParallelLanes(settings).run();
    }

    private void run() throws InterruptedException {
        ParallelStreamProcessor<String, byte[]> processor =
                ParallelStreamProcessor.createEosStreamProcessor(options());
        processor.subscribe(List.of(settings.get("topic")));
        processor.poll(this::handle);
        long tickMillis = Math.round(Double.parseDouble(settings.get("tick")) * 1_000);
        while (true) {
            Thread.sleep(tickMillis);
            tell("{\"at\": %.6f, \"handled\": %d}", System.nanoTime() / 1e9, handled.get());
        }
    }

    private ParallelConsumerOptions<String, byte[]> options() {
        int partitions = Integer.parseInt(settings.get("partitions"));
        int lanes = Integer.parseInt(settings.get("lanes"));
        // Without lanes: one record of a partition at a time.
        ProcessingOrder order = lanes == 0 ? ProcessingOrder.PARTITION : ProcessingOrder.KEY;
        return ParallelConsumerOptions.<String, byte[]>builder()
                .consumer(consumer())
                .ordering(order)
                .maxConcurrency(partitions * Math.max(lanes, 1))
                .batchSize(batch)
                .messageBufferSize(Integer.parseInt(settings.getOrDefault("buffer", "0")))
                .build();
    }

    private KafkaConsumer<String, byte[]> consumer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap"));
        properties.put("group.id", settings.get("group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.forEach((name, value) -> {
            if (name.startsWith(KAFKA)) {
                properties.put(name.substring(KAFKA.length()), value);
            }
        });
        return new KafkaConsumer<>(properties);
    }

    private void handle(PollContext<String, byte[]> context) {
        if (drain > 0) {
            began.compareAndSet(0, System.nanoTime());
        }
        try {
            if (!hungKey.isEmpty() && hungKey.equals(context.getSingleConsumerRecord().key())) {
                never.await();
            }
            work();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        long now = handled.addAndGet(batch == 1 ? 1 : context.size());
        if (now == drain) {
            tell("{\"drained\": %.6f}", (System.nanoTime() - began.get()) / 1e9);
        }
    }

    private void work() throws InterruptedException, IOException {
        switch (work) {
            case "sleep" -> Thread.sleep(latencyMillis);
            case "http" -> ask();
            case "nothing" -> { }
            default -> throw new IllegalArgumentException(work);
        }
    }

    private void ask() throws IOException {
        HttpURLConnection connection = (HttpURLConnection) service.openConnection();
        if (connection.getResponseCode() != 200) {
            throw new IOException("the service answered " + connection.getResponseCode());
        }
        try (InputStream body = connection.getInputStream()) {
            body.readAllBytes();
        }
    }

    private static void tell(String form, Object... facts) {
        synchronized (System.out) {
            System.out.println(String.format(Locale.ROOT, form, facts));
            System.out.flush();
        }
    }
}
