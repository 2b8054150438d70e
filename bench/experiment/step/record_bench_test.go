package step_test

import (
	"testing"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/trace"
)

// BenchmarkRecord records two steps of redimnet-b2, all of it trained.
func BenchmarkRecord(b *testing.B) {
	board := trace.Board{Name: "rtx-5060-ti", Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16_615_079_936}
	registry := all.Models()
	c := models.Case{Model: "redimnet-b2", Stage: "full", Batch: 32}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Record(c, board, models.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
