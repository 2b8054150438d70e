package options_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/options"
)

type value struct {
	Name        string
	Ranks       int64
	Way         string
	Shards, One bool
	Layers      []string
	Eager       bool
}

var table = options.Table[value]{
	options.NewCount("ranks", 1, 8, func(v *value) *int64 { return &v.Ranks }),
	options.Enum("way", "ring", func(v *value) *string { return &v.Way }, "ring", "tree").For("a"),
	options.OffOption("split", func(v *value) *bool { return &v.Shards }),
	options.SwitchOption("one", func(v *value) *bool { return &v.One }).For("a", "b"),
	options.NamesOption("layers", func(v *value) *[]string { return &v.Layers }),
	options.ChoiceOption("linear", "fused", "eager", func(v *value) *bool { return &v.Eager }),
}

func read(text string) (v value, err error) {
	err = table.ReadNamed(&v, &v.Name, "kind", text, []string{"a", "b", "c"})
	return v, err
}

func TestOptionsAreReadAsTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value{
			Name: "a", Ranks: rapid.Int64Range(0, 8).Draw(t, "ranks"), Shards: rapid.Bool().Draw(t, "shards"),
			Way: rapid.SampledFrom([]string{"", "tree"}).Draw(t, "way"), One: rapid.Bool().Draw(t, "one"),
			Layers: rapid.SampledFrom([][]string{nil, {"q"}, {"q", "v"}}).Draw(t, "layers"),
			Eager:  rapid.Bool().Draw(t, "eager"),
		}
		again, err := read(table.FormatNamed(v.Name, &v))
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}

func TestElementsOfListsMayFollowEachOther(t *testing.T) {
	v, err := read("a:one, layers=q,v+o,way=ring,linear=fused,split=1")
	require.NoError(t, err)
	require.Equal(t, value{Name: "a", One: true, Layers: []string{"q", "v", "o"}}, v)
}

func TestErrorsSayWhichOptionsThereAre(t *testing.T) {
	for text, want := range map[string]string{
		"d":              `there is no kind "d"; all: a, b, c`,
		"b:way=ring":     `b has no option "way", only a; the options of b are ranks, split, one, layers, linear`,
		"c:one":          `c has no option "one", only a, b`,
		"a:rank=1":       `there is no option "rank"; near it: ranks; the options of a are ranks, way`,
		"a:":             `"" is not key=value`,
		"a:layers=q,way": `"way" is not key=value`,
		"a:one,one":      "one: given twice",
		"a:ranks=9":      `ranks: "9" is not a whole number from 1 to 8`,
		"a:way=star":     `way: "star" is none of ring, tree`,
		"a:split=no":     `split: "no" is neither true nor false`,
		"a:layers=q,":    `layers: "q+" has an empty name`,
	} {
		_, err := read(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestWholeNumbersAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]int64{
		"12": 12, "-3": -3, "1_000_000": 1e6, "1e6": 1e6, "1.28M": 1_280_000, "52k": 52_000, "1B": 1e9,
		"9223372036854775807": 1<<63 - 1,
	} {
		n, err := options.ParseInteger(text, 1000)
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
	n, err := options.ParseInteger("8K", 1024)
	require.NoError(t, err)
	require.Equal(t, int64(8192), n)
	for _, text := range []string{"", "k", "1.5", "8kk", "0x10", "1e-3", "1.0001k", "9223372036854775808", "1e99"} {
		_, err := options.ParseInteger(text, 1000)
		require.Error(t, err, text)
	}
}
