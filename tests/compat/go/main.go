// Command compat drives a broker with Go's clients. Sarama and kafka-go have files of their own; here is franz-go: produce and consume, both group protocols, transactions (KIP-890), share groups (KIP-932).
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const records = 1000

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "go:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed string) error {
	if err := createTopics(ctx, seed); err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	if err := produce(ctx, seed); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := consume(ctx, seed, "classic"); err != nil {
		return fmt.Errorf("classic group: %w", err)
	}
	if err := consume(ctx, seed, "KIP-848", kgo.ServerSideBalancer()); err != nil {
		return fmt.Errorf("KIP-848 group: %w", err)
	}
	if err := transactions(ctx, seed); err != nil {
		return fmt.Errorf("transactions: %w", err)
	}
	if err := shared(ctx, seed); err != nil {
		return fmt.Errorf("share group: %w", err)
	}
	if err := withSarama(ctx, seed); err != nil {
		return fmt.Errorf("Sarama: %w", err)
	}
	if err := withKafkaGo(ctx, seed); err != nil {
		return fmt.Errorf("kafka-go: %w", err)
	}
	return nil
}

func createTopics(ctx context.Context, seed string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(seed))
	if err != nil {
		return err
	}
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopics(ctx, 3, -1, nil, "go", "go-copy")
	if err != nil {
		return err
	}
	return created.Error()
}

func produce(ctx context.Context, seed string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.DefaultProduceTopic("go"))
	if err != nil {
		return err
	}
	defer client.Close()
	for i := range records {
		client.Produce(ctx, kgo.StringRecord(fmt.Sprint(i)), func(_ *kgo.Record, failed error) {
			if failed != nil {
				err = failed
			}
		})
	}
	if flushed := client.Flush(ctx); flushed != nil {
		return flushed
	}
	fmt.Println("go: produced:", records)
	return err
}

func consume(ctx context.Context, seed, group string, more ...kgo.Opt) error {
	client, err := kgo.NewClient(append(more, kgo.SeedBrokers(seed), kgo.ConsumerGroup("go-"+group),
		kgo.ConsumeTopics("go"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	seen, err := values(ctx, client, records)
	if err != nil {
		return err
	}
	fmt.Printf("go: consumed with group %s: %d\n", group, len(seen))
	return client.CommitUncommittedOffsets(ctx)
}

// transactions copies a topic exactly once, aborting each second batch the first time that it is read.
func transactions(ctx context.Context, seed string) error {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(seed), kgo.TransactionalID("go-copy"),
		kgo.ConsumerGroup("go-copy"), kgo.ConsumeTopics("go"), kgo.DefaultProduceTopic("go-copy"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(2048))
	if err != nil {
		return err
	}
	defer session.Close()
	aborted := false
	for copied := 0; copied < records; {
		fetches := session.PollRecords(ctx, 100)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { session.Produce(ctx, kgo.SliceRecord(record.Value), nil) })
		want := kgo.TryCommit
		if !aborted && copied > 0 {
			want, aborted = kgo.TryAbort, true
		}
		committed, err := session.End(ctx, want)
		if err != nil {
			return err
		}
		if committed {
			copied += fetches.NumRecords()
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ConsumeTopics("go-copy"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer client.Close()
	seen, err := values(ctx, client, records)
	if err != nil {
		return err
	}
	fmt.Println("go: copied in transactions, one of them aborted:", len(seen))
	return nil
}

// shared reads a topic in a share group of two members. Each third record is released once, each third renewed before it is accepted.
func shared(ctx context.Context, seed string) error {
	admin, err := kgo.NewClient(kgo.SeedBrokers(seed))
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := fromBeginning(ctx, admin, "go-shared"); err != nil {
		return err
	}
	failed := make(chan error, 100)
	var members []*kgo.Client
	for range 2 {
		member, err := kgo.NewClient(kgo.SeedBrokers(seed), kgo.ShareGroup("go-shared"), kgo.ConsumeTopics("go"),
			kgo.ShareMaxRecords(50), kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
				if err := results.Error(); err != nil {
					failed <- err
				}
			}))
		if err != nil {
			return err
		}
		defer member.Close()
		members = append(members, member)
	}
	accepted := make(map[string]bool)
	for turn := 0; len(accepted) < records; turn++ {
		member := members[turn%2]
		brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := member.PollFetches(brief)
		cancel()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("after %d of %d records: %w", len(accepted), records, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Offset%3 == 1 && record.DeliveryCount() == 1 {
				record.Ack(kgo.AckRelease)
				return
			}
			if accepted[string(record.Value)] {
				failed <- fmt.Errorf("record %q came again after it was accepted", record.Value)
			}
			if record.Offset%3 == 2 {
				record.Ack(kgo.AckRenew)
			}
			record.Ack(kgo.AckAccept)
			accepted[string(record.Value)] = true
		})
		if err := member.FlushAcks(ctx); err != nil {
			return err
		}
	}
	select {
	case err := <-failed:
		return err
	default:
	}
	fmt.Println("go: shared by two members:", len(accepted))
	return nil
}

// fromBeginning lets a share group that does not exist yet begin where the topics do.
func fromBeginning(ctx context.Context, client *kgo.Client, group string) error {
	earliest := "earliest"
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", &earliest
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	altered, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(altered.Resources[0].ErrorCode)
}

// values reads until there are as many different values as wanted; a value that comes twice is an error.
func values(ctx context.Context, client *kgo.Client, wanted int) (map[string]bool, error) {
	seen := make(map[string]bool)
	for len(seen) < wanted {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", len(seen), wanted, err)
		}
		var err error
		fetches.EachRecord(func(record *kgo.Record) {
			if seen[string(record.Value)] {
				err = fmt.Errorf("record %q came twice", record.Value)
			}
			seen[string(record.Value)] = true
		})
		if err != nil {
			return nil, err
		}
	}
	return seen, nil
}
