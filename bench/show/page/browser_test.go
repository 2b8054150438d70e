package page_test

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/show/page"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/headless"
)

// browser is a headless Chromium with the page open.
type browser struct{ *headless.Tab }

// open opens the page. Without a Chromium the test is skipped, unless VPROF_BROWSER=required.
func open(t testing.TB, p *page.Page, width, height int64, actions ...chromedp.Action[chromedp.Void]) *browser {
	return openText(t, written(t, p), width, height, actions...)
}

// openText opens the text of a page.
func openText(t testing.TB, text string, width, height int64, actions ...chromedp.Action[chromedp.Void]) *browser {
	b := &browser{headless.Open(t, width, height)}
	path := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	page := (&url.URL{Scheme: "file", Path: path}).String()
	require.NoError(t, chromedp.Do(b, append(actions, chromedp.Navigate(page), chromedp.WaitVisible("#verdict"))...))
	return b
}

// js returns the value of an expression in the page.
func js[T any](t testing.TB, b *browser, expression string) T {
	return headless.Value[T](t, b, expression)
}

func (b *browser) press(t testing.TB, selector string, keys ...string) {
	require.NoError(t, chromedp.Do(b, chromedp.Focus(selector), chromedp.KeyEvent(strings.Join(keys, ""))))
}

func TestEveryPartIsDrawn(t *testing.T) {
	p := toyPage(t)
	b := open(t, p, 1100, 900)
	require.Equal(t, 4, js[int](t, b, `document.querySelectorAll(".peaks .row[role=listitem]").length`))
	// The canvases are not of one color, and the flame has its root.
	for _, canvas := range []string{".timeline", ".heap"} {
		require.Greater(t, js[int](t, b,
			`(() => { const c = document.querySelector("`+canvas+
				` canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, s = new Set(); for (let i = 0; i < d.length; i += 4) s.add(d[i] << 16 | d[i+1] << 8 | d[i+2]); return s.size; })()`), 5, canvas)
	}
	require.Contains(t, js[string](t, b, `document.querySelector(".flame button").getAttribute("aria-label")`), "toy: ")
	b.Quiet(t)
}

func TestHoverAndKeysShowTheTensor(t *testing.T) {
	p := swept(t, redimnetB2(), 16<<30, 8)
	b := open(t, p, 1100, 900)
	// The pointer over the middle of the timeline.
	js[any](t, b,
		`(() => { const c = document.querySelector(".timeline canvas"); c.scrollIntoView(); const r = c.getBoundingClientRect();
		c.dispatchEvent(new PointerEvent("pointermove", {clientX: r.left + r.width / 2, clientY: r.top + 150, bubbles: true})); return null; })()`)
	tip := js[string](t, b,
		`(() => { const t = document.querySelector(".timeline .tip"); return t.hidden ? "hidden" : t.textContent; })()`)
	require.Regexp(t, `(allocates|frees) \S+ \S+ of [a-z ]+.*event \d+ of \d+.*allocated, .* reserved`, tip)
	require.Contains(t, tip, " in ", "the tip names the module")

	b.press(t, ".timeline canvas", "p")
	said := js[string](t, b, `document.querySelector(".timeline ~ .controls .live").textContent`)
	require.Contains(t, said, "(the peak)")
	require.Contains(t, said, "backward")
	b.press(t, ".timeline canvas", "+", "+", kb.ArrowRight)
	next := js[string](t, b, `document.querySelector(".timeline ~ .controls .live").textContent`)
	require.NotEqual(t, said, next)
	require.NotContains(t, next, "(the peak)")

	b.press(t, ".heap canvas", kb.ArrowRight)
	require.Contains(t, js[string](t, b, `document.querySelector(".heap ~ .live").textContent`), "in segment 1")

	b.press(t, ".flame button:nth-child(2)", kb.Enter)
	require.Contains(t, js[string](t, b, `document.querySelector(".flame ~ .live").textContent`), "redimnet-b2")
	b.press(t, ".flame button", kb.Escape)
	b.Quiet(t)
}

// What the page draws adds up to what the run says.
func TestTimelinePeaksWhereTheRunDoes(t *testing.T) {
	p := swept(t, redimnetB2(), 16<<30, 8)
	b := open(t, p, 1100, 900)
	raw := js[string](t, b, `(() => { const d = JSON.parse(document.querySelector(".step-data").textContent);
		let now = d.start.reduce((a, b) => a + b, 0), top = 0, at = 0;
		d.events.forEach((e, i) => { now += e < 0 ? -d.bytes[-1 - e] : d.bytes[e]; if (now > top) { top = now; at = i; } });
		return JSON.stringify([top, at, d.peak, d.flame.b, d.segments.flat().reduce((a, b) => a + b[0], 0)]); })()`)
	var got [5]int64
	require.NoError(t, json.Unmarshal([]byte(raw), &got))
	peak := p.Step.Run.Peak
	require.Equal(t, peak.Usage.Allocated, got[0])
	require.Equal(t, got[1], got[2])
	require.Equal(t, peak.Usage.Allocated, got[3])
	require.Equal(t, peak.Usage.Reserved, got[4])
	b.Quiet(t)
}

func TestThirtyThousandEventsArePainted(t *testing.T) {
	b := open(t, long(t, 30000), 1100, 900)
	require.Positive(t, b.painted(t))
	b.Quiet(t)
}

// painted waits for the page to be painted and is when that was, ms after it began.
func (b *browser) painted(t testing.TB) float64 {
	return js[float64](t, b,
		`new Promise(done => { const look = () => document.documentElement.dataset.painted ? done(+document.documentElement.dataset.painted) : setTimeout(look, 5); look(); })`)
}

// BenchmarkLongTimeline opens a page of 30,000 events: until it is drawn, until it is
// painted, and for each move of the pointer over the timeline.
func BenchmarkLongTimeline(b *testing.B) {
	var drawn, painted, move float64
	for b.Loop() {
		w := open(b, long(b, 30000), 1100, 900)
		drawn += js[float64](b, w, `+document.documentElement.dataset.drawn`)
		painted += w.painted(b)
		move += js[float64](b, w,
			`(() => { const c = document.querySelector(".timeline canvas"), r = c.getBoundingClientRect(), t = performance.now();
		for (let i = 0; i < 20; i++) c.dispatchEvent(new PointerEvent("pointermove", {clientX: r.left + 100 + 40 * i, clientY: r.top + 150, bubbles: true}));
		return (performance.now() - t) / 20; })()`)
	}
	for name, ms := range map[string]float64{"ms-drawn": drawn, "ms-painted": painted, "ms/move": move} {
		b.ReportMetric(ms/float64(b.N), name)
	}
}

func TestPageFitsAPhoneAndTheDark(t *testing.T) {
	dark := chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		return err
	})
	p := swept(t, redimnetB2(), 16<<30, 8, 16)
	last := &p.Runs[0].Points[len(p.Runs[0].Points)-1]
	last.Expandable = &last.Estimate.Device // advice with a setting that is longer than the screen is wide
	b := open(t, p, 360, 740, dark)
	require.LessOrEqual(t, js[int](t, b, `document.documentElement.scrollWidth`), 360)
	require.Equal(t, "rgb(18, 20, 23)", js[string](t, b, `getComputedStyle(document.body).backgroundColor`))
	require.Positive(t, js[int](t, b, `document.querySelector(".timeline canvas").width`))
	b.Quiet(t)
}

// On paper the page is light whatever the screen is, no table is cut off, and
// what was folded is open; afterwards the screen is as before.
func TestPageIsWholeOnPaper(t *testing.T) {
	media := func(b context.Context, name string) {
		_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Media: name, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		require.NoError(t, err)
	}
	b := open(t, swept(t, redimnetB2(), 16<<30, 8, 16), 700, 990,
		chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			media(ctx, "screen")
			return nil
		}))
	corner := `(() => { const c = document.querySelector(".timeline canvas"); return c.getContext("2d").getImageData(c.width - 1, c.height - 1, 1, 1).data.slice(0, 3).join(); })()`
	dark := js[string](t, b, corner)
	media(b, "print")
	js[any](t, b, `(window.dispatchEvent(new Event("beforeprint")), null)`)
	require.Equal(t, "255,255,255", js[string](t, b, corner))
	require.Zero(t,
		js[int](t, b,
			`[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > 701 && !e.closest("svg")).length`), "nothing is cut off")
	require.Zero(t, js[int](t, b, `document.querySelectorAll("details:not([open])").length`))
	media(b, "screen")
	js[any](t, b, `(window.dispatchEvent(new Event("afterprint")), null)`)
	require.Equal(t, dark, js[string](t, b, corner))
	require.Zero(t, js[int](t, b, `document.querySelectorAll("details[open]").length`))
	b.Quiet(t)
}

// VPROF_SCREENSHOT=FILE takes the picture that the README shows.
func TestScreenshot(t *testing.T) {
	path := os.Getenv("VPROF_SCREENSHOT")
	if path == "" {
		t.Skip("VPROF_SCREENSHOT names no file")
	}
	p := sweptWith(t, planner.Residuals, redimnetB2(), 16612720640, 16, 8, 24, 32, 48, 64, 128)
	records, err := reference.Open("../../reference/data/redimnet-b2.jsonl")
	require.NoError(t, err)
	for _, r := range records.Records {
		if c := p.Runs[0].Case; r.Stage == c.Stage && r.AMP == "" && !r.Checkpointing && r.Accumulate == 1 &&
			r.AllocConf == "" {
			p.References = append(p.References, r)
		}
	}
	b := open(t, p, 1080, 1580)
	png, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, png, 0o600))
}

// The guide's figure stands where it belongs: between the ticks of the chart, as long as its range.
func TestGuidesFigureIsDrawnToScale(t *testing.T) {
	p := sweptWith(t, residuals, redimnetB2(), 16612720640, 16, 32)
	require.NotEmpty(t, p.Runs[0].Points[1].Claims)
	b := open(t, p, 1100, 900)
	// Pixels of the second row: of a GiB, of the guide's range and its middle.
	px := js[[]float64](t, b, `(() => {
		const box = s => document.querySelector(s).getBoundingClientRect();
		const row = ".peaks .row[role=listitem]:nth-child(2) ", track = box(row + "svg.track");
		const gib = box(row + "line.limit").left - track.left;
		const claim = box(row + "rect.claimed"), mark = box(row + ".mark.claim path");
		return [gib, claim.left - track.left, claim.right - track.left, (mark.left + mark.right) / 2 - track.left];
	})()`)
	context := p.Runs[0].Devices[0].Context
	perByte := px[0] / float64(p.Runs[0].Devices[0].Memory-context)
	claim := p.Runs[0].Points[1].Claims[0]
	require.Equal(t, "~4-6 GB", claim.Quote)
	require.InDelta(t, float64(claim.Bytes.Low-context)*perByte, px[1], 2)
	require.InDelta(t, float64(claim.Bytes.High-context)*perByte, px[2], 2)
	require.InDelta(t, (px[1]+px[2])/2, px[3], 2)
	require.Contains(t, js[string](t, b,
		`document.querySelector(".peaks .row[role=listitem]:nth-child(2)").getAttribute("aria-label")`),
		"guide ~4-6 GB (drawn less the context), section 2, stage 2")
	require.Contains(t, js[string](t, b, `document.querySelector("ul.legend").textContent`),
		"estimate in the guide")
	b.Quiet(t)
}
