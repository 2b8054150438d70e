package oracle

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// drawCall draws a direction of a convolution as PyTorch calls it.
func drawCall(t *rapid.T) (cudnn.Config, cudnn.Direction) {
	size := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
	groups := size("groups", 1, 8)
	c := cudnn.Config{
		Dim: int(size("dims", 1, 3)), Transposed: rapid.Bool().Draw(t, "transposed"),
		N: size("samples", 1, 1<<20), Ci: groups * size("c", 1, 999), Co: groups * size("k", 1, 999), Groups: groups,
		DType:  rapid.SampledFrom([]cudnn.DType{cudnn.F32, cudnn.F16, cudnn.BF16}).Draw(t, "type"),
		Layout: rapid.SampledFrom([]cudnn.Layout{cudnn.Contiguous, cudnn.ChannelsLast}).Draw(t, "layout"),
	}
	for i := range c.Dim {
		c.K[i], c.Stride[i], c.Dilation[i] = size("kernel", 1, 9), size("stride", 1, 4), size("dilation", 1, 3)
		c.Pad[i] = size("pad", 0, c.K[i]/2)
		c.In[i] = size("in", c.Dilation[i]*c.K[i], 1<<20)
	}
	d := rapid.SampledFrom([]cudnn.Direction{cudnn.Forward, cudnn.GradInput, cudnn.GradWeight}).Draw(t, "direction")
	return c, d
}

func TestQuestionsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Of(drawCall(t))
		have, err := ParseQuestion(want.String())
		require.NoError(t, err)
		require.Equal(t, want.String(), have.String())
		// Axes that a question lacks are not written; they are of size one.
		require.Equal(t, want, Of(have.Config, have.Operation))
	})
}

func TestQuestionsAboutTheSameCallOfCUDNNAreEqual(t *testing.T) {
	signal := cudnn.Config{
		Dim: 1, N: 4, Ci: 8, Co: 6, In: [3]int64{100}, Out: [3]int64{49}, K: [3]int64{4}, Stride: [3]int64{2},
		Dilation: [3]int64{1}, Groups: 2, DType: cudnn.F16,
	}
	up := signal
	up.Transposed, up.Ci, up.Co, up.In, up.Out = true, 6, 8, signal.Out, signal.In
	line := "1 1 0 2 4 8 6 2 1 100 1 4 1 49 1 2 0 0 1 1"
	require.Equal(t, line, Of(signal, cudnn.GradInput).String())
	require.Equal(t, line, Of(up, cudnn.Forward).String())
}

// stem is a question in one line: a 7x7 convolution at stride 2.
const stem = "0 1 0 2 32 3 64 1 224 224 7 7 112 112 2 2 3 3 1 1"

// write makes a file of these lines.
func write(t *testing.T, name string, text []byte) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// read collects all answers of a file.
func read(path string) (answers []Answer, err error) {
	err = Read(path, func(a Answer) { answers = append(answers, a) })
	return answers, err
}

func TestAnswersHaveEngineKnobsAndBytes(t *testing.T) {
	text := stem + "|25591824 38,0=3,2=7,12=-1 0\n" +
		stem + "|none\n" +
		stem + "|0 0 4f\n"
	q, err := ParseQuestion(stem)
	require.NoError(t, err)
	want := []Answer{
		{Question: q, Engine: 38, Knobs: map[int]int64{0: 3, 2: 7, 12: -1}, Bytes: 25591824},
		{Question: q, Knobs: map[int]int64{}},
	}
	have, err := read(write(t, "answers", []byte(text)))
	require.NoError(t, err)
	require.Equal(t, want, have)

	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	have, err = read(write(t, "answers.gz", packed.Bytes()))
	require.NoError(t, err)
	require.Equal(t, want, have)

	path := write(t, "cut.gz", packed.Bytes()[:packed.Len()-9])
	_, err = read(path)
	require.ErrorContains(t, err, path+": unexpected EOF")
}

func TestErrorsNameFileAndLine(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"no answer", stem, "no bar"},
		{"no question", "|0 0 0", "have 0 numbers"},
		{"a word", "0 1 0 two|0 0 0", `parsing "two"`},
		{"a size too few", stem[:len(stem)-2] + "|0 0 0", "have 19 numbers"},
		{"a size too many", stem + " 1|0 0 0", "have 21 numbers"},
		{"one dimension", "0 1 0 1 4 8 6 2 1 100 4 49 2 0|0 0 0", "two or three dimensions"},
		{"more dimensions than an int", "0 1 0 4294967298" + stem[7:] + "|0 0 0", "two or three dimensions"},
		{"an operation that is none", "3" + stem[1:] + "|0 0 0", "unknown operation 3"},
		{"an operation beyond a byte", "256" + stem[1:] + "|0 0 0", "unknown operation 256"},
		{"a type that is none", "0 -1" + stem[3:] + "|0 0 0", "unknown type -1"},
		{"a layout of PyTorch's", "0 1 2" + stem[5:] + "|0 0 0", "unknown layout 2"},
		{"bytes that are none", stem + "|many 0 0", `parsing "many"`},
		{"an engine that is none", stem + "|0 x 0", `parsing "x"`},
		{"half a knob", stem + "|0 1,2=,3=4 0", `knob "2="`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, "answers", fmt.Appendf(nil, "%s|none\n%s\n", stem, c.line))
			_, err := read(path)
			require.ErrorContains(t, err, path+": line 2: ")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	for _, path := range []string{
		filepath.Join(t.TempDir(), "absent"),
		write(t, "plain.gz", []byte(stem+"|none\n")),
		write(t, "endless", bytes.Repeat([]byte("0 "), 1<<16)),
	} {
		_, err := read(path)
		require.ErrorContains(t, err, path)
	}
}

func FuzzParseQuestion(f *testing.F) {
	f.Add(stem)
	f.Add("2 0 1 3 1 1 1 1 8 8 8 3 3 3 6 6 6 1 1 1 0 0 0 1 1 1")
	f.Add("256 0 0 2 1 1 1 1 8 8 3 3 6 6 1 1 0 0 1 1")
	f.Add("0 0 0 9223372036854775807")
	f.Fuzz(func(t *testing.T, line string) {
		q, err := ParseQuestion(line)
		if err != nil {
			return
		}
		require.LessOrEqual(t, q.Operation, cudnn.GradWeight)
		again, err := ParseQuestion(q.String())
		require.NoError(t, err)
		require.Equal(t, q, again)
	})
}

func FuzzParseAnswer(f *testing.F) {
	f.Add("25591824 38,0=3,2=7,12=-1 0")
	f.Add("none")
	f.Add("0 0,=, 4f")
	f.Fuzz(func(t *testing.T, line string) {
		q := Question{Operation: cudnn.GradWeight}
		a, ok, err := parseAnswer(q, line)
		if err != nil || !ok {
			require.False(t, ok)
			return
		}
		require.Equal(t, q, a.Question)
		words := fmt.Sprint(a.Bytes, " ", a.Engine)
		for knob, value := range a.Knobs {
			words += fmt.Sprintf(",%d=%d", knob, value)
		}
		again, ok, err := parseAnswer(q, words+" 0")
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, a, again)
	})
}
