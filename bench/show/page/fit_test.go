package page_test

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
	"github.com/vprof/vprof/models"
)

// choice returns a recommended batch that needs so many bytes of a GPU.
func choice(gpu string, batch int, bytes int64) report.Choice {
	return report.Choice{
		Device: gpu, Recommended: true, Batch: batch, Largest: batch, EffectiveBatch: batch,
		Case: report.Case{Case: models.Case{Stage: "full", Accumulate: 1}},
		Estimate: &report.Estimate{
			Device: report.Interval{Bytes: bytes, Low: bytes, High: bytes}, Verdict: report.Fits,
			Components: []report.Component{{Name: "weights", Bytes: bytes / 4}, {Name: "activations", Bytes: bytes * 3 / 4}},
		},
	}
}

// The bars of all GPUs have one axis, which ends with the memory of the largest one; the verdict names each GPU.
func TestAFitHasOneAxisAndOneVerdict(t *testing.T) {
	f := &report.Fit{
		Schema: report.FitSchema, Model: "toy", BatchUnit: "clip", Budget: report.Budget{Margin: .85},
		Devices: []report.Device{
			{Name: "sim:t4", GPU: "t4", Memory: 16 << 30, Simulated: true},
			{Name: "sim:a40", GPU: "a40", Memory: 48 << 30, Simulated: true},
		},
		Choices: []report.Choice{choice("sim:t4", 8, 12<<30), choice("sim:a40", 24, 36<<30)},
	}
	var b bytes.Buffer
	require.NoError(t, (&page.Fit{Fit: f}).Write(&b))
	html := b.String()
	require.Contains(t, html, `class="verdict good"><p>t4, stage full: 8 clips`)
	require.Contains(t, html, `<p>a40, stage full: 24 clips`)
	require.Contains(t, html, "t4, stage full, batch 8")
	var widths []string
	for _, m := range regexp.MustCompile(`class="c-activations" x="([\d.]+)%" width="([\d.]+)%"`).FindAllStringSubmatch(html, -1) {
		widths = append(widths, m[1]+" "+m[2])
	}
	require.Equal(t, []string{"6.25 18.75", "18.75 56.25"}, widths)
}

// A search without a safe configuration says so.
func TestAFitOfNothingIsBad(t *testing.T) {
	f := &report.Fit{
		Schema: report.FitSchema, Model: "toy", BatchUnit: "clip", Budget: report.Budget{Margin: .85},
		Devices: []report.Device{{Name: "sim:t4", GPU: "t4", Memory: 16 << 30, Simulated: true}},
		Choices: []report.Choice{{Device: "sim:t4", Case: report.Case{Case: models.Case{Stage: "full"}}}},
	}
	var b bytes.Buffer
	require.NoError(t, (&page.Fit{Fit: f}).Write(&b))
	require.Contains(t, b.String(), `class="verdict bad"><p>`)
	require.NotContains(t, b.String(), "Components of memory")
}
