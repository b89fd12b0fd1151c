// Record batches by the Java client, and the Java client's opinion of ours. cases.txt tells what is in them.
//
//   java -cp "$HOME/.cache/aiokprod/kafka/4.3.1/*" Golden.java make cases.txt FOLDER     writes FOLDER/NAME.CODEC
//   java -cp "$HOME/.cache/aiokprod/kafka/4.3.1/*" Golden.java check cases.txt FOLDER    reads FOLDER/NAME.CODEC
//
// (The jars come with the first real cluster: aiokprod.testing.KafkaCluster.) To make the golden files anew:
//   java -cp ... Golden.java make cases.txt .

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

public class Golden {
    record Row(long timestamp, byte[] key, byte[] value, Header[] headers) {}

    record Case(String name, long producerId, short epoch, int sequence, boolean transactional, long logAppendTime,
                List<Row> rows) {
        boolean atAppend() {
            return logAppendTime >= 0;
        }
    }

    static byte[] bytes(String text) {
        if (text.equals("-")) return null;
        if (text.equals(".")) return new byte[0];
        String[] parts = text.split("\\*");
        byte[] unit = java.util.HexFormat.of().parseHex(parts[0]);
        int count = parts.length > 1 ? Integer.parseInt(parts[1]) : 1;
        byte[] all = new byte[unit.length * count];
        for (int i = 0; i < all.length; i++) all[i] = unit[i % unit.length];
        return all;
    }

    static List<Case> read(Path path) throws Exception {
        List<Case> cases = new ArrayList<>();
        for (String line : Files.readAllLines(path)) {
            String[] words = line.trim().split(" +");
            if (words[0].equals("batch")) {
                cases.add(new Case(words[1], Long.parseLong(words[2]), Short.parseShort(words[3]),
                    Integer.parseInt(words[4]), words[5].equals("1"), Long.parseLong(words[6]), new ArrayList<>()));
            } else if (words[0].equals("record")) {
                Header[] headers = Arrays.stream(words).skip(4).map(pair -> {
                    String[] sides = pair.split("=", 2);
                    return new RecordHeader(new String(bytes(sides[0]), StandardCharsets.UTF_8), bytes(sides[1]));
                }).toArray(Header[]::new);
                cases.get(cases.size() - 1).rows()
                    .add(new Row(Long.parseLong(words[1]), bytes(words[2]), bytes(words[3]), headers));
            }
        }
        return cases;
    }

    static byte[] make(Case it, CompressionType codec) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(codec).build(), it.atAppend() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            0L, it.atAppend() ? it.logAppendTime() : RecordBatch.NO_TIMESTAMP, it.producerId(), it.epoch(),
            it.sequence(), it.transactional(), false, RecordBatch.NO_PARTITION_LEADER_EPOCH);
        for (Row row : it.rows()) builder.append(row.timestamp(), row.key(), row.value(), row.headers());
        ByteBuffer buffer = builder.build().buffer();
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        return data;
    }

    static void same(Object found, Object wanted, String what) {
        if (!wanted.equals(found)) throw new AssertionError(what + ": " + found + ", not " + wanted);
    }

    static void check(Case it, CompressionType codec, byte[] data) {
        int batches = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batches++;
            batch.ensureValid();
            same(batch.sizeInBytes(), data.length, "size");
            same(batch.compressionType(), codec, "codec");
            same(batch.producerId(), it.producerId(), "producer id");
            same(batch.producerEpoch(), it.epoch(), "epoch");
            same(batch.baseSequence(), it.sequence(), "sequence");
            same(batch.isTransactional(), it.transactional(), "transactional");
            same(batch.isControlBatch(), false, "control");
            same(batch.timestampType() == TimestampType.LOG_APPEND_TIME, it.atAppend(), "timestamp type");
            same(batch.lastOffset(), (long) it.rows().size() - 1, "last offset");
            same(batch.countOrNull(), it.rows().size(), "count");
            long max = it.rows().stream().mapToLong(Row::timestamp).max().getAsLong();
            same(batch.maxTimestamp(), max, "max timestamp");
            int at = 0;
            for (Record record : batch) {
                record.ensureValid();
                Row row = it.rows().get(at);
                same(record.offset(), (long) at, "offset");
                same(record.timestamp(), row.timestamp(), "timestamp");
                same(record.hasKey(), row.key() != null, "has key");
                same(record.hasValue(), row.value() != null, "has value");
                if (record.hasKey()) same(record.key(), ByteBuffer.wrap(row.key()), "key");
                if (record.hasValue()) same(record.value(), ByteBuffer.wrap(row.value()), "value");
                same(Arrays.asList(record.headers()), Arrays.asList(row.headers()), "headers");
                at++;
            }
            same(at, it.rows().size(), "records");
        }
        same(batches, 1, "batches");
    }

    public static void main(String[] args) throws Exception {
        int files = 0;
        for (Case it : read(Path.of(args[1]))) {
            for (CompressionType codec : CompressionType.values()) {
                Path path = Path.of(args[2], it.name() + "." + codec.name);
                if (args[0].equals("make")) Files.write(path, make(it, codec));
                else check(it, codec, Files.readAllBytes(path));
                files++;
            }
        }
        System.out.println(args[0] + " " + files);
    }
}
