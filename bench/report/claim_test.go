package report_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/report"
)

func TestGuidesAreJudgedByTheirLimits(t *testing.T) {
	const mib = 1 << 20
	bytes := func(low, high int64) *report.ByteRange { return &report.ByteRange{Low: low * mib, High: high * mib} }
	share := func(low, high float64) *report.ShareRange { return &report.ShareRange{Low: low, High: high} }
	seconds := func(low, high float64) *report.Seconds { return &report.Seconds{Seconds: low, Low: low, High: high} }
	for _, c := range []struct {
		claim report.Claim
		want  string
	}{
		{report.Claim{}, "-"},
		{report.Claim{Bytes: bytes(1, 1), Answer: &report.Answer{Refused: "torch.compile"}}, "-"},
		{report.Claim{Bytes: bytes(100, 200), Answer: &report.Answer{Bytes: bytes(150, 150)}}, "right"},
		{report.Claim{Bytes: bytes(110, 200), Answer: &report.Answer{Bytes: bytes(100, 100)}}, "right"}, // a tenth off
		{report.Claim{Bytes: bytes(111, 200), Answer: &report.Answer{Bytes: bytes(100, 100)}}, "1.1× too high"},
		{report.Claim{Bytes: bytes(2600, 3000), Answer: &report.Answer{Bytes: bytes(50, 100)}}, "26 to 52× too high"},
		{report.Claim{Bytes: bytes(10, 20), Answer: &report.Answer{Bytes: bytes(50, 100)}}, "2.5 to 5.0× too low"},
		{report.Claim{Bytes: bytes(0, 4096), Answer: &report.Answer{Bytes: bytes(50, 100)}}, "right"}, // 4 GiB or less
		{report.Claim{Bytes: bytes(10, 20), Answer: &report.Answer{Bytes: bytes(0, 0)}}, "too high"},
		{report.Claim{Bytes: bytes(50, 60), Answer: &report.Answer{Bytes: bytes(55, 180)}}, "up to 3.0× too low"},
		{report.Claim{Bytes: bytes(50, 60), Answer: &report.Answer{Bytes: bytes(25, 55)}}, "up to 2.0× too high"},
		// that matters more
		{report.Claim{Bytes: bytes(50, 60), Answer: &report.Answer{Bytes: bytes(20, 90)}}, "up to 1.5× too low"},
		{report.Claim{Bytes: bytes(50, 60), Answer: &report.Answer{Bytes: bytes(0, 55)}}, "partly too high"},
		{report.Claim{Share: share(0.3, 0.4), Answer: &report.Answer{Share: share(0.44, 0.44)}}, "right"},
		{report.Claim{Share: share(0.3, 0.4), Answer: &report.Answer{Share: share(0.1, 0.35)}}, "partly too high"},
		{report.Claim{Share: share(0.3, 0.4), Answer: &report.Answer{Share: share(0.35, 0.6)}}, "partly too low"},
		{report.Claim{Share: share(0.3, 0.4), Answer: &report.Answer{Share: share(0.6, 0.7)}}, "too low"},
		{report.Claim{Share: share(0.3, 0.4), Answer: &report.Answer{Share: share(-0.7, -0.7)}}, "too high"},
		{report.Claim{Seconds: seconds(2, 3), Answer: &report.Answer{Seconds: seconds(2, 4)}}, "right"},
		{report.Claim{Seconds: seconds(1, 3), Answer: &report.Answer{Seconds: seconds(2, 4)}}, "partly outside"},
		{
			report.Claim{Seconds: seconds(1, 1), Answer: &report.Answer{Seconds: seconds(2, 4)}},
			"outside: 2.0× too short",
		},
		{
			report.Claim{Seconds: seconds(6, 8), Answer: &report.Answer{Seconds: seconds(2, 4)}},
			"outside: 1.5× too long",
		},
		{report.Claim{Answer: &report.Answer{Verdict: report.Fits, Bytes: bytes(1, 1)}}, "right"},
		{report.Claim{Answer: &report.Answer{Verdict: report.Tight}}, "tight"},
		{report.Claim{Answer: &report.Answer{Verdict: report.DoesNotFit}}, "wrong"},
		{report.Claim{IsDoubted: true, Answer: &report.Answer{Verdict: report.Fits}}, "too careful"},
		{report.Claim{IsDoubted: true, Answer: &report.Answer{Verdict: report.Tight}}, "tight"},
		{report.Claim{IsDoubted: true, Answer: &report.Answer{Verdict: report.DoesNotFit}}, "right"},
	} {
		require.Equal(t, c.want, c.claim.Judge(), "%+v", c.claim)
	}
}

// An answer's range holds all that was added, and its verdict is the worst.
func TestAnswersHoldWhatIsAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(-1<<40, 1<<40), 1, 8).Draw(t, "values")
		verdicts := []report.Verdict{report.Fits, report.Tight, report.DoesNotFit}
		var bytes, shares report.Answer
		worst := 0
		for _, v := range values {
			bytes.AddValue(float64(v), false)
			shares.AddValue(float64(v), true)
			i := rapid.IntRange(0, 2).Draw(t, "verdict")
			bytes.AddVerdict(verdicts[i])
			worst = max(worst, i)
		}
		for _, v := range values {
			require.True(t, bytes.Bytes.Low <= v && v <= bytes.Bytes.High)
			require.True(t, shares.Share.Low <= float64(v) && float64(v) <= shares.Share.High)
		}
		require.Contains(t, values, bytes.Bytes.Low)
		require.Contains(t, values, bytes.Bytes.High)
		require.Equal(t, verdicts[worst], bytes.Verdict)
		require.Nil(t, shares.Bytes)
	})
}

func TestRangesNameTheirUnitOnce(t *testing.T) {
	require.Equal(t, "1.00 to 2.00 GiB", report.ByteRange{Low: 1 << 30, High: 2 << 30}.String())
	require.Equal(t, "512.00 MiB to 2.00 GiB", report.ByteRange{Low: 1 << 29, High: 2 << 30}.String())
	require.Equal(t, "1.00 GiB", report.ByteRange{Low: 1 << 30, High: 1<<30 + 1}.String())
	require.Equal(t, "-72 to 40 %", report.ShareRange{Low: -0.72, High: 0.4}.String())
	require.Equal(t, "0 %", report.ShareRange{Low: -0.001, High: 0.001}.String())
}
