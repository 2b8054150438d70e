package answers

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

const stem = "0 1 0 2 32 3 64 1 224 224 7 7 112 112 2 2 3 3 1 1"

// write writes a file with the text and returns its path.
func write(t *testing.T, name string, text []byte) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// read returns all answers of a file.
func read(path string) (answers []Answer, err error) {
	err = Read(path, func(a Answer) { answers = append(answers, a) })
	return answers, err
}

func TestAnswersHaveEngineKnobsAndBytes(t *testing.T) {
	text := stem + "|25591824 38,0=3,2=7,12=-1 0\n" +
		stem + "|none\n" +
		stem + "|0 0 4f\n"
	q, err := query.ParseQuestion(stem)
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
		{"no question", "|0 0 0", "got 0 numbers"},
		{"a word", "0 1 0 two|0 0 0", `parsing "two"`},
		{"a size too few", stem[:len(stem)-2] + "|0 0 0", "got 19 numbers"},
		{"a size too many", stem + " 1|0 0 0", "got 21 numbers"},
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

func FuzzParseAnswer(f *testing.F) {
	f.Add("25591824 38,0=3,2=7,12=-1 0")
	f.Add("none")
	f.Add("0 0,=, 4f")
	f.Fuzz(func(t *testing.T, line string) {
		q := query.Question{Operation: cudnn.GradWeight}
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
