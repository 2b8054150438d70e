package script

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// questionAbout reads a line about a convolution.
func questionAbout(line string) (query.Question, error) {
	words := strings.Fields(line)
	given := map[string]string{}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		given[key] = value
	}
	return parseConvolution(words[1], given)
}

func TestQuestionsAboutConvolutions(t *testing.T) {
	q, err := questionAbout("conv dgrad dtype=half compute=float x=8,4,64,32;s=8192,1,128,4 w=16,2,3,3;s=18,9,3,1 " +
		"y=8,16,64,32;s=1,1,1,1 pad=1,1 stride=1,1 dilation=1,1")
	require.NoError(t, err)
	require.Equal(t, cudnn.GradInput, q.Operation)
	c := q.Config
	require.Equal(t, []int64{8, 4, 16, 2}, []int64{c.N, c.Ci, c.Co, c.Groups})
	require.Equal(t, cudnn.F16, c.DType)
	require.Equal(t, cudnn.ChannelsLast, c.Layout)
	require.Equal(t, [3]int64{3, 3, 1}, c.K)
	for _, line := range []string{
		"", "nothing", "conv fprop", "rnn workspace mode=lstm dtype=half", "rnn reserve mode=what dtype=float",
		"norm forward dtype=half x=1,2", "conv up dtype=half",
		"conv fprop dtype=other x=1,1,1,1 w=1,1,1,1 y=1,1,1,1 pad=0,0 stride=1,1 dilation=1,1",
		"conv fprop dtype=half x=1,3,8,8 w=4,2,3,3 y=1,4,8,8 pad=1,1 stride=1,1 dilation=1,1",
		"conv fprop dtype=half x=1,2,8,8 w=4,0,3,3 y=1,4,8,8 pad=1,1 stride=1,1 dilation=1,1",
		"conv fprop dtype=half x=1,2,8,8 w=4,2,3,3 y=1,4,8,8 pad=1 stride=1,1 dilation=1,1",
	} {
		_, err := parseQuestion(line)
		require.Error(t, err, line)
	}
}

// Sizes of layers come from package cudnn, which compares them with recordings.
func TestQuestionsAboutLayers(t *testing.T) {
	lstm := cudnn.RNN{
		Mode: cudnn.LSTM, Element: 2, Length: 30, Batch: 8, Inputs: 40, Hidden: 64, Layers: 2,
		Directions: 2, Training: true,
	}
	dropping, packed := lstm, lstm
	dropping.Dropout, packed.Packed = true, 100
	norm := cudnn.BatchNorm{Channels: 12, Rows: 4 * 8 * 8}
	layers := " mode=lstm dtype=half length=30 batch=8 inputs=40 hidden=64 projected=0 layers=2 directions=2 training=1"
	plain, drops, packs := layers+" dropout=0 packed=0", layers+" dropout=1 packed=0", layers+" dropout=0 packed=100"
	s := &cudnnServer{known: map[string]string{}, settled: map[query.Question]bool{}, gpu: cudnn.GPU{Capability: 86}}
	for _, c := range []struct {
		line string
		want int64
	}{
		{"rnn workspace" + plain, lstm.Workspace(86)},
		{"rnn reserve" + plain, lstm.Reserve()},
		{"rnn workspace" + drops, dropping.Workspace(86)},
		{"rnn reserve" + drops, dropping.Reserve()},
		{"rnn workspace" + packs, packed.Workspace(86)},
		{"rnn reserve" + packs, packed.Reserve()},
		{"norm forward dtype=float x=4,12,8,8", norm.Forward()},
		{"norm backward dtype=float x=4,12,8,8", norm.Backward()},
	} {
		require.Equal(t, strconv.FormatInt(c.want, 10)+" modeled", s.answer(c.line))
	}
	require.Equal(t, "0 unknown", s.answer("graph 1|2:3:4"))
	require.Equal(t, report.Workspaces{Modeled: 8, Unknown: 1}, s.Sizes())
	s.answer("rnn reserve" + plain)
	require.Equal(t, report.Workspaces{Modeled: 8, Unknown: 1}, s.Sizes(), "a question counts once")
}

// With torch.backends.cudnn.benchmark PyTorch tries all engines that cuDNN has for a convolution, in its order.
func TestQuestionsAboutOtherEngines(t *testing.T) {
	const line = "conv fprop dtype=half compute=float x=8,4,64,32;s=8192,1,128,4 w=16,4,3,3;s=36,9,3,1 " +
		"y=8,16,64,32;s=1,1,1,1 pad=1,1 stride=1,1 dilation=1,1"
	asked, err := questionAbout(line)
	require.NoError(t, err)
	listed := map[query.Question]map[string][]capture.Engine{asked: {
		"proposal": {{Workspace: 64}, {Workspace: 900, Notes: []int{0, 4}}, {Workspace: 32}},
		"fallback": {{}, {Workspace: 5000, Notes: []int{2}}},
	}}
	for _, c := range []struct {
		cudnn           map[query.Question]map[string][]capture.Engine
		engine, answers string
	}{
		{listed, "proposal=1", "900 asked"},
		{listed, "proposal=1 notes", "17 asked"},
		{listed, "proposal=2", "32 asked"},
		{listed, "proposal=2 notes", "0 asked"},
		{listed, "proposal=3", "-1 none"},
		{listed, "fallback=1", "5000 asked"},
		{listed, "fallback=1 notes", "4 asked"},
		{listed, "fallback=2", "-1 none"},
		{nil, "notes", "0 modeled"},
		{nil, "proposal=1", "-1 none"},
		{nil, "proposal=1 notes", "0 modeled"},
		{nil, "fallback=0", "0 modeled"},
		{nil, "fallback=1", "-1 none"},
		{nil, "fallback=-1", "0 unknown"},
	} {
		s := &cudnnServer{known: map[string]string{}, engines: c.cudnn, settled: map[query.Question]bool{}}
		require.Equal(t, c.answers, s.answer(line+" "+c.engine), c.engine)
	}
	s := &cudnnServer{known: map[string]string{}, engines: listed, settled: map[query.Question]bool{}}
	for _, engine := range []string{"proposal=1 notes", "proposal=1", "proposal=2", "fallback=1"} {
		s.answer(line + " " + engine)
	}
	require.Equal(t, report.Workspaces{FromCuDNN: 1}, s.Sizes(), "a convolution counts once")
}
