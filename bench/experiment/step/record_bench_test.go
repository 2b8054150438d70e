package step_test

import (
	"testing"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/steptest"
)

// BenchmarkRecord records two steps of redimnet-b2, all of it trained.
func BenchmarkRecord(b *testing.B) {
	gpu := trace.GPU{Name: "rtx-5060-ti", Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16_615_079_936}
	registry := all.Models()
	c := models.Case{Model: "redimnet-b2", Stage: "full", Batch: 32}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Record(c, gpu, models.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRanks records and replays two steps of gpt2: alone, and as one rank of eight
// under fully_shard, which is to take no more than three times as long.
func BenchmarkRanks(b *testing.B) {
	gpu, err := device.Lookup("a100-80")
	if err != nil {
		b.Fatal(err)
	}
	for _, strategy := range []string{"", "fsdp2", "ddp"} {
		c := models.Case{Stage: "full", Batch: 4}
		if strategy != "" {
			s, err := models.ParseStrategy(strategy)
			if err != nil {
				b.Fatal(err)
			}
			c.GPUs, c.Strategy = 8, &s
		}
		m, err := all.Models().Lookup("gpt2")
		if err != nil {
			b.Fatal(err)
		}
		setup, err := step.New(m, c, steptest.Exact())
		if err != nil {
			b.Fatal(err)
		}
		b.Run("strategy="+strategy, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := setup.Try(b.Context(), setup.Trial(gpu, 4)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
