package step_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/sample"
)

// A recording into the memory of discarded ones is as it would be in memory of its own.
func TestDiscardedRecordingsLeaveNothingBehind(t *testing.T) {
	gpu, err := device.Lookup("a100-40")
	require.NoError(t, err)
	record := func(m models.Model) *models.Recording {
		rec, err := m.Record(m.Default, step.RecorderGPU(gpu), models.Options{})
		require.NoError(t, err)
		return rec
	}
	for _, m := range sample.Of(all.Models().All()) {
		fresh := record(m).Program
		other := record(all.Models().All()[0])
		record(m).Discard()
		other.Discard()
		rec := record(m)
		require.True(t, reflect.DeepEqual(fresh, rec.Program), m.Name)
		rec.Discard()
		require.Nil(t, rec.Program)
		rec.Discard() // a second time is nothing
	}
}
