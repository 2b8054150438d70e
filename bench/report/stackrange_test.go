package report_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
)

func pointOf(bytes int64, v report.Verdict) report.Point {
	i := report.Interval{Bytes: bytes, Low: bytes - 1, High: bytes + 1}
	e := &report.Estimate{Allocated: i, Reserved: i, Device: i, Verdict: v}
	return report.Point{Batch: 2, Device: "sim:t4", Estimate: e}
}

func TestTheRangeOverReleasesHoldsAll(t *testing.T) {
	others := map[string]*report.Estimate{
		"4.48": pointOf(12, report.DoesNotFit).Estimate, "4.53": pointOf(8, report.Fits).Estimate,
		"5.0": pointOf(10, report.Fits).Estimate,
	}
	p := pointOf(10, report.Fits)
	p.SetStackRange([]string{"trl 1.6 to 1.16"}, others, &report.ReportedMargins{}, 1<<40)
	require.Equal(t, []string{"4.48", "4.53"}, p.StackRange.Releases)
	require.Equal(t, report.Interval{Bytes: 10, Low: 7, High: 13}, p.StackRange.Device)
	require.Equal(t, report.DoesNotFit, p.StackRange.Verdict)
	require.Equal(t, report.Interval{Bytes: 10, Low: 9, High: 11}, p.Estimate.Device)

	same := pointOf(1000, report.Fits)
	reported := &report.ReportedMargins{
		Allocated: [2]float64{-.1, .2}, Reserved: [2]float64{0, .3}, Source: "two sources; held in 3 of 4",
	}
	same.SetStackRange(nil, nil, reported, 1301)
	require.Equal(t, report.Fits, same.StackRange.Verdict)
	same.SetStackRange(nil, nil, reported, 1300)
	require.Equal(t, report.Tight, same.StackRange.Verdict, "its upper end exceeds the memory")
	require.Empty(t, same.StackRange.Releases)
	require.Equal(t, report.Interval{Bytes: 1000, Low: 899, High: 1201}, same.StackRange.Allocated)
	require.Equal(t, report.Interval{Bytes: 1000, Low: 999, High: 1301}, same.StackRange.Device)
	require.Equal(t, "two sources; held in 3 of 4", same.StackRange.Intervals)

	unknown := pointOf(10, report.Fits)
	unknown.SetStackRange(nil, others, nil, 0)
	require.Nil(t, unknown.StackRange)
	require.Equal(t, report.Interval{Bytes: 10, Low: 7, High: 13}, unknown.Estimate.Allocated)
	require.Equal(t, report.DoesNotFit, unknown.Estimate.Verdict)
}
