package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressSaysHowLongItWillTake(t *testing.T) {
	for _, c := range []struct {
		done, total int
		elapsed     time.Duration
		want        string
	}{
		{0, 12, 3 * time.Second, "vprof: 0 of 12 GPUs"},
		{3, 12, 3 * time.Second, "vprof: 3 of 12 GPUs, about 9s left"},
		{12, 12, 3 * time.Second, "vprof: 12 of 12 GPUs, about 1s left"},
		{10, 1000, time.Minute, "vprof: 10 of 1000 GPUs, about 1h39m0s left"},
	} {
		require.Equal(t, c.want, (&progressLine{activity: "GPUs", done: c.done, total: c.total}).line(c.elapsed))
	}
}

// What takes no time shows nothing; the line of what takes longer is gone when results come.
func TestProgressWaitsAndLeavesNothing(t *testing.T) {
	var out bytes.Buffer
	p := &progressLine{to: &out, stop: make(chan struct{}), began: time.Now()}
	p.show()
	p.step("GPUs", 1, 4)
	p.end()
	require.Empty(t, out.String())

	require.Equal(t, "vprof: working, 3s", (&progressLine{}).line(3*time.Second))
	require.Equal(t, "vprof: Python exports m, 3s", (&progressLine{activity: "Python exports m"}).line(3*time.Second))
	p = &progressLine{to: &out, stop: make(chan struct{}), began: time.Now()}
	p.step("GPUs", 1, 4)
	p.draw(p.began.Add(2 * time.Second))
	p.step("records", 0, 9) // begins anew
	p.draw(p.began.Add(time.Second))
	p.end()
	require.Equal(t, "\r\x1b[Kvprof: 1 of 4 GPUs, about 6s left\r\x1b[Kvprof: 0 of 9 records\r\x1b[K", out.String())
}

// A log has no use for progress.
func TestProgressIsQuietWherePiped(t *testing.T) {
	a, _, stderr := desk()
	p := startProgress(a, false)
	p.step("GPUs", 1, 4)
	p.end()
	require.Empty(t, stderr.String())
}
