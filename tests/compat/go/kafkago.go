package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
)

// withKafkaGo drives a broker with segmentio's kafka-go: a writer, a reader in a group, offsets.
func withKafkaGo(ctx context.Context, seed string) error {
	client := &kafka.Client{Addr: kafka.TCP(seed)}
	topic := kafka.TopicConfig{Topic: "kafka-go", NumPartitions: 2, ReplicationFactor: 1}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err := errors.Join(err, created.Errors["kafka-go"]); err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	writer := &kafka.Writer{Addr: kafka.TCP(seed), Topic: "kafka-go", RequiredAcks: kafka.RequireAll,
		Compression: kafka.Lz4, BatchTimeout: 5 * time.Millisecond}
	messages := make([]kafka.Message, records)
	for i := range messages {
		messages[i] = kafka.Message{Key: []byte(fmt.Sprint(i)), Value: []byte(fmt.Sprint(i)), Headers: []kafka.Header{{Key: "origin", Value: []byte("kafka-go")}}}
	}
	if err := errors.Join(writer.WriteMessages(ctx, messages...), writer.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := kafkaGoRead(ctx, seed); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	fetched, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: "kafka-go", Topics: map[string][]int{"kafka-go": {0, 1}}})
	if err != nil {
		return err
	}
	var committed int64
	for _, partition := range fetched.Topics["kafka-go"] {
		committed += partition.CommittedOffset
	}
	if committed != records {
		return fmt.Errorf("%d records are committed instead of %d", committed, records)
	}
	fmt.Println("go: kafka-go read and committed:", records)
	return nil
}

func kafkaGoRead(ctx context.Context, seed string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{seed}, GroupID: "kafka-go", Topic: "kafka-go",
		MinBytes: 1, MaxBytes: 1e6, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond})
	defer reader.Close()
	seen := make(map[string]bool)
	last := make(map[int]kafka.Message)
	for len(seen) < records {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return fmt.Errorf("after %d of %d records: %w", len(seen), records, err)
		}
		if seen[string(message.Value)] {
			return fmt.Errorf("record %q came twice", message.Value)
		}
		seen[string(message.Value)] = true
		last[message.Partition] = message
	}
	return reader.CommitMessages(ctx, slices.Collect(maps.Values(last))...)
}
