import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/**
 * A receiver of client telemetry (KIP-714) for tests: each push becomes a line of a file, which the broker's property
 * aiokprod.telemetry.file names.
 *
 * <p>Its interfaces are those of Kafka 3.7 to 4; Kafka 5 has only ClientTelemetryExporterProvider, which came with 4.2.
 *
 * <p>A line is: client id, client instance id, true if the client said that it ends, content type, decompressed bytes in Base64.
 */
public final class TelemetryToFile implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private Path file;

    @Override
    public void configure(Map<String, ?> properties) {
        file = Path.of(String.valueOf(properties.get("aiokprod.telemetry.file")));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public synchronized void exportMetrics(AuthorizableRequestContext client, ClientTelemetryPayload push) {
        ByteBuffer data = push.data().duplicate();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        String line = String.join(
                " ",
                client.clientId(),
                push.clientInstanceId().toString(),
                String.valueOf(push.isTerminating()),
                push.contentType(),
                Base64.getEncoder().encodeToString(bytes));
        try {
            Files.writeString(file, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
