package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// withSarama drives a broker with Sarama: administration, an idempotent producer, transactions, a consumer group.
func withSarama(ctx context.Context, seed string) error {
	config := saramaConfig()
	admin, err := sarama.NewClusterAdmin([]string{seed}, config)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic("sarama", &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	if err := saramaProduce(seed, config); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := saramaTransact(seed); err != nil {
		return fmt.Errorf("transactions: %w", err)
	}
	if err := saramaConsume(ctx, seed, config); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	fmt.Println("go: Sarama read, committed records only:", records+1)
	return saramaAdminister(admin)
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = sarama.CompressionZSTD
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func saramaProduce(seed string, config *sarama.Config) error {
	producer, err := sarama.NewSyncProducer([]string{seed}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, records)
	for i := range messages {
		value := sarama.StringEncoder(fmt.Sprint(i))
		messages[i] = &sarama.ProducerMessage{Topic: "sarama", Key: value, Value: value}
	}
	return producer.SendMessages(messages)
}

// saramaTransact commits one transaction and aborts another.
func saramaTransact(seed string) error {
	config := saramaConfig()
	config.Producer.Transaction.ID = "sarama"
	producer, err := sarama.NewAsyncProducer([]string{seed}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for value, end := range map[string]func() error{"committed": producer.CommitTxn, "aborted": producer.AbortTxn} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		producer.Input() <- &sarama.ProducerMessage{Topic: "sarama", Value: sarama.StringEncoder(value)}
		select {
		case <-producer.Successes():
		case failed := <-producer.Errors():
			return failed
		}
		if err := end(); err != nil {
			return fmt.Errorf("%s: %w", value, err)
		}
	}
	return nil
}

func saramaConsume(ctx context.Context, seed string, config *sarama.Config) error {
	group, err := sarama.NewConsumerGroup([]string{seed}, "sarama", config)
	if err != nil {
		return err
	}
	defer group.Close()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	values := make(chan string, records)
	ended := make(chan error, 1)
	go func() { ended <- group.Consume(reading, []string{"sarama"}, saramaReader{values}) }()
	seen := make(map[string]bool)
	for len(seen) < records+1 {
		select {
		case value := <-values:
			if value == "aborted" || seen[value] {
				return fmt.Errorf("record %q should not have come", value)
			}
			seen[value] = true
		case err := <-ended:
			return errors.Join(err, fmt.Errorf("the session ended after %d records", len(seen)))
		case <-ctx.Done():
			return fmt.Errorf("after %d records: %w", len(seen), ctx.Err())
		}
	}
	stop()
	return <-ended
}

type saramaReader struct{ values chan<- string }

func (saramaReader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (reader saramaReader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			session.MarkMessage(message, "")
			reader.values <- string(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaAdminister(admin sarama.ClusterAdmin) error {
	offsets, err := admin.ListConsumerGroupOffsets("sarama", nil)
	if err != nil {
		return err
	}
	if count := len(offsets.Blocks["sarama"]); count != 3 {
		return fmt.Errorf("the group has offsets of %d partitions instead of 3", count)
	}
	return errors.Join(
		admin.CreatePartitions("sarama", 5, nil, false),
		admin.DeleteRecords("sarama", map[int32]int64{0: 2}),
		admin.DeleteConsumerGroup("sarama"),
		admin.DeleteTopic("sarama"),
	)
}
