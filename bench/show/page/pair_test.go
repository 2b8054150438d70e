package page_test

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
	"github.com/vprof/vprof/tools/toy"
)

// toyPair returns toy on a GPU of 1 GiB and, with other batch sizes, on one of 2 GiB.
func toyPair(t testing.TB) *page.Pair {
	p := &page.Pair{A: toyPage(t), B: swept(t, toy.Model(), 2<<30, 8, 16, 24)}
	p.B.Runs[0].Case.AMP = "bf16"
	return p
}

func writtenPair(t testing.TB, p *page.Pair) string {
	var b bytes.Buffer
	require.NoError(t, p.Write(&b))
	return b.String()
}

func TestPairSaysWhatDiffers(t *testing.T) {
	p := toyPair(t)
	require.Equal(t, 16, p.Batch(), "the largest that both have and that fits both")
	text := writtenPair(t, p)
	require.Contains(t, text, `<th scope="row">precision</th><td>none</td><td>bf16</td>`)
	require.Regexp(t, `<th scope="row">device</th><td>[^<]*1.00 GiB</td><td>[^<]*2.00 GiB</td>`, text)
	require.NotContains(t, text, `<th scope="row">stage</th>`, "what is the same is not said")
	require.Contains(t, text, "<dt>Stage</dt>")
	require.NotContains(t, text, "<dt>Precision</dt>", "what differs is no fact of both")

	p.B.Runs[0].Case.AMP = ""
	require.NotContains(t, writtenPair(t, p), `<th scope="row">precision</th>`)
}

func TestPairSaysTheVerdict(t *testing.T) {
	p := toyPair(t)
	p.A.Step, p.B.Step = nil, nil
	verdict := func() string {
		return regexp.MustCompile(`id="verdict"[^>]*>(.*?)</p>`).FindStringSubmatch(writtenPair(t, p))[1]
	}
	need := &p.B.Runs[0].Points[1].Run.Device
	*need = p.A.Runs[0].Points[1].Run.Device / 2
	require.Regexp(t,
		`^At batch 16, B needs \S+ MiB of the device, \S+ MiB less than A \(-50.0 %\)\. Of the batch sizes shown, 32 is the largest that fits with A and 24 is the largest that fits with B\.$`, verdict())
	*need = p.A.Runs[0].Points[1].Run.Device
	require.Contains(t, verdict(), "as much as A.")
	*need += 1 << 10
	require.Contains(t, verdict(), "1.00 KiB more than A. Of")
	p.B.Runs[0].Points = p.B.Runs[0].Points[2:]
	require.Contains(t, verdict(), "The runs have no batch size in common; with batch 24 where A has 32, B needs")
	p.A.Runs[0].Points = p.A.Runs[0].Points[3:]
	require.Contains(t, verdict(), "none fits with A")
}

// The parts of a point are listed for both sides, and what one side does not have is zero.
func TestPairComparesComponents(t *testing.T) {
	p := toyPair(t)
	p.A.Step, p.B.Step = nil, nil
	p.A.Runs[0].Points[1].Estimate.Components = []report.Component{
		{Name: "weights", Bytes: 3 << 20},
		{Name: "context", Bytes: 1 << 20},
	}
	p.B.Runs[0].Points[1].Estimate.Components = []report.Component{
		{Name: "weights", Bytes: 1 << 20},
		{Name: "gradients", Bytes: 2 << 20},
	}
	text := writtenPair(t, p)
	for _, row := range []string{
		`weights</td><td class="num">3.00 MiB</td><td class="num">1.00 MiB</td><td class="num">-2.00 MiB</td>`,
		`context</td><td class="num">1.00 MiB</td><td class="num">0 B</td><td class="num">-1.00 MiB</td>`,
		`gradients</td><td class="num">0 B</td><td class="num">2.00 MiB</td><td class="num">&#43;2.00 MiB</td>`,
		`together</td><td class="num">4.00 MiB</td><td class="num">3.00 MiB</td><td class="num">-1.00 MiB</td>`,
	} {
		require.Contains(t, text, row)
	}
}

// The memory of the smaller GPU ends in the middle of an axis that reaches the end of the larger one.
func TestPairHasOneScale(t *testing.T) {
	text := writtenPair(t, toyPair(t))
	var ends []float64
	for _, m := range regexp.MustCompile(`<line class="limit" x1="([0-9.]+)%"`).FindAllStringSubmatch(text, -1) {
		at, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		ends = append(ends, at)
	}
	require.Len(t, ends, 7)
	require.Less(t, ends[0], 60.0)
	require.Greater(t, ends[6], 90.0)
	scales := regexp.MustCompile(`"scale":(\d+)`).FindAllStringSubmatch(text, -1)
	require.Len(t, scales, 2)
	require.Equal(t, scales[0][1], scales[1][1])
}

func TestPairRefusesWhatNoPageCanShow(t *testing.T) {
	p := toyPair(t)
	p.B.Runs[0].Points = nil
	require.ErrorIs(t, p.Write(&bytes.Buffer{}), page.ErrEmpty)
	p = toyPair(t)
	p.A.Runs = append(p.A.Runs, p.B.Runs...)
	var mixed *page.MixedError
	require.ErrorAs(t, p.Write(&bytes.Buffer{}), &mixed)
}

// Both steps are drawn and answer the keys, and a phone has one below the other.
func TestPairInABrowser(t *testing.T) {
	b := openText(t, writtenPair(t, toyPair(t)), 1400, 900)
	require.Equal(t, 2, js[int](t, b, `document.querySelectorAll(".side .timeline canvas").length`))
	require.Equal(t, 2, js[int](t, b, `document.querySelectorAll(".side .flame button:first-child").length`))
	b.press(t, ".side:nth-child(2) .timeline canvas", "p")
	require.Contains(t, js[string](t, b,
		`document.querySelectorAll(".timeline ~ .controls .live")[1].textContent`), "(the peak)")
	require.NotContains(t, js[string](t, b,
		`document.querySelectorAll(".timeline ~ .controls .live")[0].textContent`), "(the peak)")
	sameRow := `document.querySelectorAll(".side")[0].offsetTop === document.querySelectorAll(".side")[1].offsetTop`
	require.True(t, js[bool](t, b, sameRow))
	b.Quiet(t)

	b = openText(t, writtenPair(t, toyPair(t)), 360, 740)
	require.LessOrEqual(t, js[int](t, b, `document.documentElement.scrollWidth`), 360)
	require.False(t, js[bool](t, b, sameRow))
	b.Quiet(t)
}
