package monitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/observe/monitor"
)

// at returns a sample of a GPU.
func at(t time.Time, used int64, processes ...monitor.Process) monitor.Round {
	return monitor.Round{Samples: []monitor.Sample{{
		Time: t, Total: 1000, Used: used, Highest: used,
		Processes: processes,
	}}}
}

func TestAnEntryIsTheMostOfItsTime(t *testing.T) {
	var h monitor.History
	for i, used := range []int64{5, 9, 1, 2, 7} {
		h.Add(at(after(50*i), used))
	}
	require.Equal(t, []int64{monitor.NoValue, 9, 2, 7}, h.Trace(0, 0, 0, 4, after(200)).Used)
	require.Equal(t, []int64{monitor.NoValue, 9}, h.Trace(0, 0, 1, 2, after(999)).Used)
	require.Equal(t, []int64{monitor.NoValue, monitor.NoValue}, h.Trace(0, 0, 0, 2, after(200)).Load)
	require.Equal(t, []int64{monitor.NoValue}, h.Trace(3, 0, 0, 1, after(200)).Used, "no such GPU")
}

// A sample that comes a little late leaves no hole, a lost GPU does.
func TestHolesAreWhereNothingWasRead(t *testing.T) {
	var h monitor.History
	h.Add(at(after(0), 5))
	h.Add(at(after(201), 7))
	h.Add(monitor.Round{
		Samples: []monitor.Sample{{Time: after(300), Error: "lost"}},
		Notices: []string{"gpu 0 is lost"},
	})
	h.Add(at(after(601), 8))
	require.Equal(t, []int64{5, 5, 7, monitor.NoValue, monitor.NoValue, monitor.NoValue, 8},
		h.Trace(0, 0, 0, 7, after(600)).Used)
	last, notices := h.Latest()
	require.Equal(t, int64(8), last.Samples[0].Used)
	require.Equal(t, []monitor.Notice{{Time: after(300), Text: "gpu 0 is lost"}}, notices)
}

func TestAProcessHasItsHistoryWhileItIsThere(t *testing.T) {
	var h monitor.History
	h.Add(at(after(0), 9, monitor.Process{PID: 7, Used: 4}))
	h.Add(at(after(100), 9, monitor.Process{PID: 7, Used: 6}))
	require.Equal(t, []int64{4, 6}, h.Trace(0, 7, 0, 2, after(100)).Used)
	h.Add(at(after(200), 3))
	require.Equal(t, []int64{monitor.NoValue, monitor.NoValue}, h.Trace(0, 7, 0, 2, after(100)).Used)
}

// However long it goes on and whatever the pauses, the newest entries are the maxima of their times.
func TestHistoryKeepsTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h monitor.History
		want := map[int64]int64{}
		ms := 0
		for _, pause := range rapid.SliceOfN(rapid.IntRange(1, 90_000), 1, 200).Draw(t, "pauses") {
			ms += pause
			used := rapid.Int64Range(0, 1000).Draw(t, "used")
			h.Add(at(after(ms), used))
			second := after(ms).Unix()
			want[second] = max(want[second], used)
		}
		got := h.Trace(0, 0, 1, 300, after(ms)).Used
		for i, v := range got {
			second := after(ms).Unix() - int64(len(got)-1-i)
			if used, known := want[second]; known && v != used {
				t.Fatalf("second %d is %d, not %d", second, v, used)
			}
			if _, known := want[second]; !known && v != monitor.NoValue && i > 0 && v != got[i-1] {
				t.Fatalf("second %d is %d of nothing", second, v)
			}
		}
		if got[len(got)-1] == monitor.NoValue {
			t.Fatal("the last sample is not there")
		}
	})
}
