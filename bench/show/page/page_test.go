package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/redimnet"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/tools/toy"
)

func residuals(planner.ResidualSubject) (allocated, reserved planner.Residual, err error) { return }

// swept returns the page of a sweep of a model on a GPU with so much memory.
func swept(t testing.TB, m models.Model, memory int64, batches ...int) *page.Page {
	return sweptWith(t, residuals, m, memory, batches...)
}

func sweptWith(t testing.TB, residuals step.ResidualsFunc, m models.Model, memory int64, batches ...int) *page.Page {
	setup, err := step.New(m, m.Default, step.Evidence{Residuals: residuals})
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	gpu.Memory = memory
	simulated, err := sim.New(gpu, 0)
	require.NoError(t, err)
	defer simulated.Close()
	options := sweep.Options{Batches: batches, Conditions: sweep.Conditions{Repeat: 1}}
	r, err := sweep.Run(t.Context(), setup, simulated, options,
		func(*report.Report) error {
			return nil
		})
	require.NoError(t, err)
	r.Tool, r.Started = report.Tool{Version: "v1.2.3"}, time.Date(2026, 11, 5, 6, 7, 8, 0, time.UTC)
	step, err := setup.Profile(t.Context(), gpu, batches[0])
	require.NoError(t, err)
	return &page.Page{Runs: []*report.Report{r}, Step: step}
}

func toyPage(t testing.TB) *page.Page { return swept(t, toy.Model(), 1<<30, 8, 16, 32, 64) }

func redimnetB2() models.Model {
	for _, m := range redimnet.Models() {
		if m.Name == "redimnet-b2" {
			m.Default.Stage = "full"
			return m
		}
	}
	panic("there is no redimnet-b2")
}

func written(t testing.TB, p *page.Page) string {
	var b bytes.Buffer
	require.NoError(t, p.Write(&b))
	return b.String()
}

func TestPageNeedsNothingFromElsewhere(t *testing.T) {
	html := written(t, toyPage(t))
	require.NotRegexp(t, `https?://|@import|url\(|<link[^>]+stylesheet|<script[^>]+src`, html)
	require.Contains(t, html, "<meta charset=\"utf-8\">")
}

// A browser runs and draws with what has the policy's digests, and nothing else.
func TestPolicyAllowsThePageAndNothingElse(t *testing.T) {
	for _, text := range []string{written(t, toyPage(t)), writtenPair(t, toyPair(t))} {
		allowsItselfAlone(t, text)
	}
}

func allowsItselfAlone(t *testing.T, text string) {
	policy := regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]*)">`).
		FindStringSubmatch(text)
	require.NotNil(t, policy)
	allowed := html.UnescapeString(policy[1])
	require.Contains(t, allowed, "default-src 'none'")
	require.NotContains(t, allowed, "unsafe")
	require.NotContains(t, allowed, "http")
	for _, tag := range []string{"style", "script"} {
		inside := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(text, -1)
		require.Len(t, inside, 1, tag)
		sum := sha256.Sum256([]byte(inside[0][1]))
		require.Contains(t, allowed, tag+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	require.NotRegexp(t, `<[^>]* (style|on[a-z]+)=`, text, "what is in the markup itself would be refused")
}

func TestPageSaysTheVerdictInASentence(t *testing.T) {
	verdict := func(p *page.Page) string {
		m := regexp.MustCompile(`(?s)id="verdict"[^>]*>(.*?)</p>`).FindStringSubmatch(written(t, p))
		require.NotNil(t, m)
		return m[1]
	}
	// 64 MiB and 15 MiB a sample, 1 GiB less the context.
	require.Regexp(t,
		`^toy fits a simulated NVIDIA GeForce RTX 5060 Ti with 1.00 GiB up to batch 16, which needs \S+ MiB and leaves \S+ MiB; batch 32 fits, but is not safe: over the limit; batch 64 runs out of memory in backward of step 1\.$`,
		verdict(toyPage(t)))
	require.Contains(t, verdict(swept(t, toy.Model(), 1<<30, 64)),
		"toy does not fit a simulated NVIDIA GeForce RTX 5060 Ti with 1.00 GiB, not even with batch 64.")
	require.NotContains(t, verdict(swept(t, toy.Model(), 1<<34, 8)), ";")
}

// A batch that may fit is neither said to fit nor not to.
func TestTightIsNotFitting(t *testing.T) {
	p := toyPage(t)
	points := p.Runs[0].Points
	for i := range points {
		points[i].Run, points[i].Estimate.Verdict = nil,
			[]report.Verdict{report.Fits, report.Fits, report.Tight, report.DoesNotFit}[i]
	}
	html := written(t, p)
	require.Regexp(t,
		`class="verdict good">toy fits a .* up to batch 16, which needs .*; batch 32 is not safe: [^;]*; batch 64 does not fit\.`, html)
	require.Equal(t, 1, strings.Count(html, "<b>tight</b>"))
	points[1].Estimate.Unsafe = "over-share"
	require.Regexp(t, `class="verdict good">toy fits a .* up to batch 8, which`, written(t, p))
	points[0].Estimate.Verdict, points[1].Estimate.Verdict = report.Tight, report.Tight
	require.Regexp(t, `class="verdict">toy on a .*: batch 32 is not safe: the upper end`, written(t, p))
	p.Runs[0].Points = points[:2]
	points[1].Estimate.Verdict, points[0].Estimate = report.Fits, points[1].Estimate
	require.Regexp(t, `class="verdict">toy on a .*: batch 16 fits, but is not safe: over the limit\.`, written(t, p))
}

// A batch that fits only because cached memory is freed is not green.
func TestSlowIsNotFitting(t *testing.T) {
	p := toyPage(t)
	p.Runs[0].Points = p.Runs[0].Points[:1]
	p.Runs[0].Points[0].Run.Retries = 3
	html := written(t, p)
	require.Regexp(t, `class="verdict">toy on a .*: batch 8 fits slowly: only because PyTorch frees cached memory\.`,
		html)
	require.Equal(t, 1, strings.Count(html, "<b>fits slowly</b>"))
}

// Several GPUs share an axis, and the step and the advice name theirs.
func TestSeveralGPUsShareAnAxis(t *testing.T) {
	p := toyPage(t)
	require.NotContains(t, written(t, p), "simulated on the ")
	other := *p.Runs[0]
	other.Devices = append([]report.Device{}, other.Devices...)
	other.Devices[0].Name = "sim:other"
	other.Points = append([]report.Point{}, other.Points...)
	for i := range other.Points {
		other.Points[i].Device = "sim:other"
	}
	other.Devices[0].Memory *= 4
	p.Runs = append(p.Runs, &other)
	html := written(t, p)
	require.Contains(t, html, "simulated on the NVIDIA GeForce RTX 5060 Ti.")
	require.Contains(t, html, "Largest safe batch of those shown on the NVIDIA GeForce RTX 5060 Ti: 16.")
	axes := regexp.MustCompile(`(?s)class="row axis".*?</div>`).FindAllString(html, -1)
	require.Len(t, axes, 2)
	ticks := regexp.MustCompile(`<text x="[^"]*" y="12">[^<]*</text>`)
	require.NotEmpty(t, ticks.FindString(axes[0]))
	require.Equal(t, ticks.FindAllString(axes[0], -1), ticks.FindAllString(axes[1], -1))
}

func TestPageShowsWhatThereIs(t *testing.T) {
	p := toyPage(t)
	p.References = []reference.Record{
		{Case: models.Case{Batch: 16}, GPU: "rtx-5060-ti", Status: reference.StatusOK, PeakReserved: 300 << 20},
		{Case: models.Case{Batch: 16}, GPU: "t4", Status: reference.StatusOK, PeakReserved: 111 << 20},
		{Case: models.Case{Batch: 16}, GPU: "rtx-5060-ti", Status: reference.StatusOOM, PeakReserved: 222 << 20},
	}
	p.Runs[0].Points[0].Claims = []report.Claim{
		{
			Quantity: "device", Quote: "~500-600 MB", Where: "section 1",
			Bytes: &report.ByteRange{Low: 500 << 20, High: 600 << 20},
		},
		{
			Quantity: "allocated", Quote: "7 GB", Where: "section 2",
			Bytes: &report.ByteRange{Low: 7 << 30, High: 7 << 30},
		},
	}
	html := written(t, p)
	for _, want := range []string{
		"PyTorch 300.00 MiB", "guide ~500-600 MB (drawn less the context), section 1",
		"estimate in the guide", "0.49–0.59", "class=\"mark simulated\"", "vprof v1.2.3",
		"2026-11-05 06:07:08 UTC", "Components of memory",
	} {
		require.True(t, strings.Contains(html, want), want)
	}
	for _, not := range []string{"111.00 MiB", "222.00 MiB", "mark measured", "7 GB"} {
		require.False(t, strings.Contains(html, not), not)
	}

	p.Step, p.NoStep = nil, "The step cannot be shown: unknown model."
	html = written(t, p)
	require.True(t, strings.Contains(html, "unknown model"))
	require.False(t, strings.Contains(html, `class="step-data"`))
}

// The step is recorded anew; one of another version may differ from the run's.
func TestPageSaysThatTheStepIsNotThatOfTheRun(t *testing.T) {
	p := toyPage(t)
	require.False(t, strings.Contains(written(t, p), "another step"))
	p.Runs[0].Points[0].Run.Allocated++
	require.True(t, strings.Contains(written(t, p), "another step"))
}

func TestNamesCannotBreakThePage(t *testing.T) {
	p := toyPage(t)
	p.Runs[0].Case.Model = "<script>alert(1)</script>"
	p.Step.Case.Model = "</script><script>alert(2)</script>\xff\x1b[2J"
	html := written(t, p)
	require.NotContains(t, html, "\x1b")
	require.NotContains(t, html, "<script>alert")
	require.Equal(t, 2, strings.Count(html, "</script>"))
}

func TestRunsThatNoPageCanShow(t *testing.T) {
	p := toyPage(t)
	other := *p.Runs[0]
	other.Case.Model = "other"
	var mixed *page.MixedError
	require.ErrorAs(t, (&page.Page{Runs: []*report.Report{p.Runs[0], &other}}).Write(&bytes.Buffer{}), &mixed)
	require.Contains(t, mixed.Error(), "other")
	empty := *p.Runs[0]
	empty.Points = nil
	for _, runs := range [][]*report.Report{nil, {&empty}} {
		require.ErrorIs(t, (&page.Page{Runs: runs}).Write(&bytes.Buffer{}), page.ErrEmpty)
	}
}

type full struct{}

var errFull = errors.New("disk full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestPageFailsWithItsFile(t *testing.T) {
	require.ErrorIs(t, toyPage(t).Write(full{}), errFull)
}

// A page of eight batch sizes takes less than 3 MB.
func TestRealPageIsSmall(t *testing.T) {
	html := written(t, swept(t, redimnetB2(), 16<<30, 4, 8, 12, 16, 20, 24, 28, 32))
	require.Less(t, len(html), 3<<20)
}

func BenchmarkPageOfEightBatches(b *testing.B) {
	p := swept(b, redimnetB2(), 16<<30, 4, 8, 12, 16, 20, 24, 28, 32)
	for b.Loop() {
		require.NoError(b, p.Write(&bytes.Buffer{}))
	}
}

// long returns a page whose step has n allocations and frees: n/2 buffers of which about a hundred live at a time.
func long(t testing.TB, n int) *page.Page {
	p := &program.Program{
		Sites:  []program.Site{{Op: "conv2d", Module: "stem"}},
		Phases: []program.Phase{{Step: 0, Name: "forward"}},
	}
	for i := range n / 2 {
		p.Buffers = append(p.Buffers, program.Buffer{
			Bytes: int64(1+i%97) << 18,
			Class: program.Class(i % program.NumClasses),
		})
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc, Arg: uint32(i)})
		if i >= 100 {
			p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Free, Arg: uint32(i - 100)})
		}
	}
	for i := n/2 - 100; i < n/2; i++ {
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Free, Arg: uint32(i)})
	}
	p.Instructions = append(p.Instructions, program.Instruction{Kind: program.MarkPhase})
	gpu, err := device.Lookup("rtx-5060-ti")
	require.NoError(t, err)
	out := toyPage(t)
	out.Step, err = profile.NewProfile(t.Context(), p, gpu, allocator.DefaultConfig())
	require.NoError(t, err)
	return out
}

// The page says what to do next, with a line to paste.
func TestPageSaysWhatToDoNext(t *testing.T) {
	p := toyPage(t)
	html := written(t, p)
	require.Contains(t, html, "Largest safe batch of those shown: 16.")
	require.Contains(t, html, "vprof fit --model toy --gpu rtx-5060-ti --stage full")
	require.Contains(t, html, `<path class="limit-mark"`)
	require.Regexp(t, `<dt>Weights</dt><dd>fp32</dd>`, html)
	require.Contains(t, html, `"top":"`)

	p.Runs[0].Points[3].Expandable = &report.Interval{Bytes: 512 << 20}
	require.Contains(t, written(t, p),
		"Cheapest remedy: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; batch 64 then needs 512.00 MiB of the "+
			"device&#39;s 1.00 GiB.")
	for i := range p.Runs[0].Points {
		p.Runs[0].Points[i].Run.Retries = 1
	}
	require.Contains(t, written(t, p), "None of the batch sizes shown is safe")
}
