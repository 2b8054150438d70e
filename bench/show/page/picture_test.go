package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	experiment "github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/toy"
)

// toySetup returns the toy's case without evidence.
func toySetup(t *testing.T) *experiment.Setup {
	m := toy.Model()
	setup, err := experiment.New(m, m.Default,
		experiment.Evidence{Residuals: func(planner.ResidualSubject) (allocated, reserved planner.Residual, err error) {
			return
		}})
	require.NoError(t, err)
	return setup
}

// planned returns the plan of the toy on GPUs with a GiB.
func planned(t *testing.T, gpus ...string) *report.Report {
	var all []*report.Report
	for _, name := range gpus {
		gpu, err := device.Lookup(name)
		require.NoError(t, err)
		gpu.Memory = 1 << 30
		r, err := sweep.Plan(t.Context(), toySetup(t), gpu, []int{8, 16, 64})
		require.NoError(t, err)
		all = append(all, r)
	}
	r, err := report.Merge(all...)
	require.NoError(t, err)
	return r
}

// drawn returns all kinds of pictures of the toy's plan.
func drawn(t *testing.T) map[string]*Picture {
	r := planned(t, "rtx-5060-ti")
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	profiled, err := toySetup(t).Profile(t.Context(), gpu, 16)
	require.NoError(t, err)
	all := map[string]*Picture{}
	for name, made := range map[string]func() (*Picture, error){
		"batch":     func() (*Picture, error) { return Peaks(r) },
		"breakdown": func() (*Picture, error) { return Breakdown(r) },
		"timeline":  func() (*Picture, error) { return Timeline(profiled) },
	} {
		all[name], err = made()
		require.NoError(t, err, name)
	}
	return all
}

func svgOf(t *testing.T, p *Picture) string {
	var b bytes.Buffer
	require.NoError(t, p.Write(&b))
	return b.String()
}

// Viewers of SVG know no variables of CSS and load nothing.
func TestEveryKindIsAWholePictureByItself(t *testing.T) {
	for name, p := range drawn(t) {
		p.Title += "\x1b[31m<&" // of a file, which XML forbids
		svg := svgOf(t, p)
		require.Contains(t, svg, "toy, stage full, fp32", name)
		require.NotContains(t, svg, "var(", name)
		require.NotContains(t, svg, "url(", name)
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, name)
			}
		}
	}
}

// All values lie on their axes: batch 64 needs 1.22 GiB reserved, and a step of batch 16 304 MiB.
func TestAxesHoldEverything(t *testing.T) {
	all := drawn(t)
	peaks := all["batch"].Charts[0].Peaks
	last := peaks.Rows[len(peaks.Rows)-1]
	require.Equal(t, "64", last.Batch)
	for _, m := range last.Marks {
		require.Less(t, m.At, 1.0)
	}
	require.Greater(t, last.Marks[0].At, peaks.Limit)
	for _, row := range all["breakdown"].Charts[0].Rows {
		end := row.Parts[len(row.Parts)-1]
		require.LessOrEqual(t, end.From+end.Width, 1.0+1e-9)
	}
	drawing := all["timeline"].Timeline
	require.Greater(t, drawing.Peak.Width, 0.0)
	for _, a := range append(drawing.Areas, area{Path: drawing.Reserved}) {
		for point := range strings.SplitSeq(strings.Trim(a.Path, "Mz"), "L") {
			x, y, ok := strings.Cut(point, " ")
			require.True(t, ok)
			for text, most := range map[string]float64{x: timelineWidth, y: timelineHeight} {
				v, err := strconv.ParseFloat(text, 64)
				require.NoError(t, err)
				require.True(t, v >= 0 && v <= most, point)
			}
		}
	}
}

func TestRunsWithoutPointsCannotBeDrawn(t *testing.T) {
	r := &report.Report{Case: report.Case{Case: models.Case{Model: "toy"}}}
	_, err := Peaks(r)
	require.ErrorContains(t, err, "no result for any batch size")
	_, err = Breakdown(r)
	require.ErrorContains(t, err, "no memory components")
}

// A plan for two GPUs has a chart for each, and one legend.
func TestGPUsStandApart(t *testing.T) {
	r := planned(t, "t4", "rtx-5060-ti")
	for _, draw := range []func(*report.Report) (*Picture, error){Peaks, Breakdown} {
		p, err := draw(r)
		require.NoError(t, err)
		svg := svgOf(t, p)
		require.Contains(t, svg, "Tesla T4")
		require.Contains(t, svg, "RTX 5060 Ti")
		require.LessOrEqual(t, strings.Count(svg, "estimate, with its interval"), 1)
	}
}

// However long a timeline is, it is drawn with few columns that keep its peak.
func TestColumnsKeepThePeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]moment, rapid.IntRange(1, 4*timelineColumns).Draw(t, "moments"))
		peak := rapid.IntRange(0, len(all)-1).Draw(t, "peak")
		all[peak].total = 1
		seen := columnPeaks(all)
		if len(seen) > timelineColumns {
			t.Fatalf("%d columns", len(seen))
		}
		found := false
		for x, i := range seen {
			found = found || i == peak
			if x > 0 && i <= seen[x-1] {
				t.Fatalf("column %d shows moment %d after %d", x, i, seen[x-1])
			}
		}
		if !found {
			t.Fatal("the peak is not drawn")
		}
	})
}
