package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
)

// Rows with the same values are one, what all rows share stands in the title, and adapters have no stage.
func TestAFitShowsWhatDiffers(t *testing.T) {
	const device = "sim:card"
	row := func(amp models.Autocast, checkpointing bool, rate float64, settings models.MemoryOptions) Choice {
		var c Choice
		c.Device, c.Batch, c.SamplesPerSecond = device, 4, rate
		c.Case.Stage, c.Case.Weights, c.Case.AMP, c.Case.MemoryOptions = "full", "bf16", amp, settings
		c.Case.LoRA, c.Case.Checkpointing = &models.LoRA{Rank: 8}, checkpointing
		c.Estimate = &Estimate{Device: Interval{Bytes: int64(rate) * bytesize.GiB}}
		return c
	}
	liger := models.MemoryOptions{Liger: true}
	f := Fit{Devices: []Device{{Name: device, GPU: "card"}}, Choices: []Choice{
		row("bf16", false, 5, liger), row(models.NoAutocast, false, 5, liger), row("bf16", true, 5, liger),
		row("bf16", true, 4, models.MemoryOptions{Liger: true, Quantize: "nf4"}),
	}}
	s := f.choicesSheet()
	require.Len(t, s.Rows, 2)
	require.Contains(t, s.Title, ", liger on ")
	require.NotContains(t, s.Title, "stage")
	require.Equal(t, "left out: 2 rows that are slower or equal a simpler one (--format csv).", s.Notes[0])
	require.Equal(t, []string{"bf16 weights", "", ""}, s.Rows[0][1:4])
	require.Equal(t, []string{"bf16 autocast, bf16 weights", "yes", "nf4"}, s.Rows[1][1:4])
	for range 2 * maxRowsPerStage {
		f.Choices = append(f.Choices, row(models.NoAutocast, false, float64(100+len(f.Choices)), liger))
	}
	require.Len(t, f.choicesSheet().Rows, maxRowsPerStage)
}
