package pickle_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/pickle"
)

var keys = map[string]bool{"a": true, "b": true}

// Integers of any length up to an address, as Python writes them.
func TestLongsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "v")
		n := rapid.IntRange(1, 8).Draw(t, "n")
		v = v << (64 - 8*n) >> (64 - 8*n)
		text := []byte{0x80, 2, 0x8a, byte(n)}
		for i := range n {
			text = append(text, byte(v>>(8*i)))
		}
		got, err := pickle.Read(append(text, '.'), keys, pickle.NewBudget(0))
		require.NoError(t, err)
		require.Equal(t, v, got)
	})
}

func TestWhatIsWrittenReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.Int64()).Draw(t, "numbers")
		text, truth := rapid.String().Draw(t, "text"), rapid.Bool().Draw(t, "truth")
		var file bytes.Buffer
		w := pickle.NewWriter(&file)
		w.Dict(func() {
			w.Key("a").List(len(numbers), func(i int) { w.Pair(numbers[i], int64(i)) })
			w.Key("not kept").Int(1)
			w.Key("b").Dict(func() {
				w.Key("a").String(text)
				w.Key("b").Bool(truth)
			})
		})
		require.NoError(t, w.Close())
		require.True(t, pickle.IsPickle(file.Bytes()))

		v, err := pickle.Read(file.Bytes(), keys, pickle.NewBudget(file.Len()))
		require.NoError(t, err)
		d := v.(*pickle.Dict)
		pairs := d.Get("a").(*pickle.List).Items
		require.Len(t, pairs, len(numbers))
		for i, p := range pairs {
			require.Equal(t, []any{numbers[i], int64(i)}, p.(*pickle.List).Items)
		}
		inner := d.Get("b").(*pickle.Dict)
		require.Equal(t, text, inner.Get("a"))
		require.Equal(t, truth, inner.Get("b"))
		require.Nil(t, d.Get("not kept"))
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s."))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := pickle.Read(data, keys, pickle.NewBudget(len(data)))
		if err != nil {
			require.Nil(t, v)
		}
	})
}
