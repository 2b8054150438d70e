package cudnn

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// steps returns a forest of one tree that names class i where a feature lies between
// i and i+1, and the last class above.
func steps(feature int, classes ...string) forest.TrainedForest {
	last := len(classes) - 1
	tree := &forest.Branch{Class: last}
	for i := last; i > 0; i-- {
		tree = &forest.Branch{Feature: feature, Threshold: float32(i), Less: &forest.Branch{Class: i - 1}, Other: tree}
	}
	return forest.TrainedForest{Classes: classes, Trees: []*forest.Branch{tree}}
}

// caseOf returns the features of a case: the variant, the count, and zeros.
func caseOf(variant, count int) []float32 {
	x := make([]float32, numFeatures)
	x[0], x[1] = float32(variant), float32(count)
	return x
}

// someEnsemble takes a variant by the first feature, and splits by the second.
func someEnsemble() []byte {
	return AppendEnsemble(nil, steps(0, "direct", "copies@1", "copies/64x128@2", "copies/64x128", "copies@4"),
		map[string]forest.TrainedForest{
			"copies@1":        steps(1, "2", "12"),
			"copies/64x128@2": steps(1, "3"),
			"copies@4":        steps(1, "7", "2", "1"),
		})
}

func TestOnlyVariantsThatSplitHaveSplitsAndEachItsOwn(t *testing.T) {
	v, err := decodeEnsemble(someEnsemble())
	require.NoError(t, err)
	for variant, want := range [][3]string{
		{"direct", "direct", "direct"},
		{"copies*2", "copies*12", "copies*12"},
		{"copies/64x128*3", "copies/64x128*3", "copies/64x128*3"},
		{"copies/64x128", "copies/64x128", "copies/64x128"},
		{"copies*7", "copies*2", "copies*1"},
	} {
		for count, choice := range want {
			require.Equal(t, choice, v.Choose(caseOf(variant, count)).String(), "variant %d, count %d", variant, count)
		}
	}
}

func TestEnsembleThatCannotChooseAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		variant string
		counts  map[string]forest.TrainedForest
		want    string
	}{
		{"unknown engine", "warp-drive", nil, `unknown engine "warp-drive"`},
		{"half a tile", "copies/64", nil, `choice "copies/64"`},
		{"no votes on splits", "copies@1", nil, "splits of copies@1: forest: the forest has no trees"},
		{
			"votes on another's splits", "copies@1",
			map[string]forest.TrainedForest{"copies@2": steps(0, "1")},
			"splits of copies@1: forest: the forest has no trees",
		},
		{
			"a count of zero", "copies@1",
			map[string]forest.TrainedForest{"copies@1": steps(0, "2", "0")},
			`splits of copies@1: invalid number of splits "0": need 1 or more`,
		},
		{"a negative count", "copies@1", map[string]forest.TrainedForest{"copies@1": steps(0, "-1")}, `number of splits "-1"`},
		{
			"a count that is no number", "copies@1",
			map[string]forest.TrainedForest{"copies@1": steps(0, "many")},
			`number of splits "many"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decodeEnsemble(AppendEnsemble(nil, steps(0, "direct", c.variant), c.counts))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestEnsembleChooseAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var variants []string
		counts := map[string]forest.TrainedForest{}
		for i := range rapid.IntRange(1, 6).Draw(t, "variants") {
			c := Choice{Engine: Engine(rapid.IntRange(0, numEngines-1).Draw(t, "engine"))}
			if rapid.Bool().Draw(t, "tiled") {
				c.TileM, c.TileN = 64, rapid.Int64Range(1, 256).Draw(t, "n")
			}
			name := c.String()
			if rapid.Bool().Draw(t, "split") {
				name += "@" + strconv.Itoa(i)
				var classes []string
				for range rapid.IntRange(1, 4).Draw(t, "counts") {
					classes = append(classes, strconv.Itoa(rapid.IntRange(1, 5000).Draw(t, "count")))
				}
				counts[name] = steps(1, classes...)
			}
			variants = append(variants, name)
		}
		b := AppendEnsemble(nil, steps(0, variants...), counts)
		have, err := decodeEnsemble(b)
		require.NoError(t, err)
		for variant, name := range variants {
			for count := range 4 {
				want, err := parseChoice(strings.Split(name, "@")[0])
				require.NoError(t, err)
				if of := counts[name].Classes; len(of) > 0 {
					want.Splits, err = strconv.ParseInt(of[min(count, len(of)-1)], 10, 64)
					require.NoError(t, err)
				}
				require.Equal(t, want, have.Choose(caseOf(variant, count)), "%s, count %d", name, count)
			}
		}
		_, err = decodeEnsemble(append(b, 0))
		require.ErrorContains(t, err, "corrections")
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		_, err = decodeEnsemble(b[:cut])
		require.Error(t, err, "the first %d of %d bytes", cut, len(b))
	})
}

// However rules are damaged, they choose what they can choose again.
func FuzzDecodeEnsemble(f *testing.F) {
	b := someEnsemble()
	f.Add(b, float32(1), float32(2))
	f.Add(b[:len(b)-1], float32(0), float32(0))
	f.Add(forest.Append(nil, steps(0, "copies@1", "copies@1")), float32(0), float32(0))
	f.Fuzz(func(t *testing.T, b []byte, one, two float32) {
		first, err := decodeEnsemble(b)
		if err != nil {
			return
		}
		again, err := decodeEnsemble(b)
		require.NoError(t, err)
		x := make([]float32, numFeatures)
		for i := range x {
			x[i] = [...]float32{one, two}[i%2]
		}
		require.Equal(t, first.Choose(x), again.Choose(x))
	})
}

// shipped has the rules of each version of cuDNN, in a folder of its own.
var shipped = os.DirFS("../../stack/cudnn")

// ruleFiles returns the names that files of rules can have.
func ruleFiles() (ensemble, corrections, devices []string) {
	for _, generation := range generations {
		for _, operation := range kindNames {
			devices = append(devices, DeviceRuleFile(generation, operation))
			for half := range precisionNames {
				ensemble = append(ensemble, RuleFile(generation, operation, half == 1))
				corrections = append(corrections, CorrectionsFile(generation, operation, half == 1))
			}
		}
	}
	return ensemble, corrections, devices
}

func TestEveryRuleNamesEnginesWithTheKnobsTheyHave(t *testing.T) {
	ensemble, corrections, _ := ruleFiles()
	for i, name := range slices.Concat(ensemble, corrections) {
		paths, err := fs.Glob(shipped, "*/"+name)
		require.NoError(t, err)
		require.True(t, len(paths) > 0 || i >= len(ensemble), name)
		for _, path := range paths {
			t.Run(path, func(t *testing.T) { checkKnobs(t, path) })
		}
	}
}

func checkKnobs(t *testing.T, path string) {
	b, err := fs.ReadFile(shipped, path)
	require.NoError(t, err)
	rules, err := DecodeRules(b)
	require.NoError(t, err)
	for _, v := range rules {
		checkKnobsOf(t, v)
	}
}

func checkKnobsOf(t *testing.T, v *Ensemble) {
	require.NotEmpty(t, v.choices)
	for i, c := range v.choices {
		split := v.splits[i].votes != nil
		require.Zero(t, c.Splits, "%v: its splits are chosen separately", c)
		require.Equal(t, c.TileM > 0, c.TileN > 0, "%v", c)
		if split || c.TileM > 0 {
			require.True(t, c.Engine.splits(), "%v, split %v", c, split)
		}
		if split && (Study{}.Tiled(c.Engine) || c.Engine == DepthwiseTiles) {
			require.Positive(t, c.TileM, "%v: what it keeps of a split depends on its tile", c)
		}
	}
}

func TestNoOtherFilesAreAmongTheRules(t *testing.T) {
	ensemble, corrections, devices := ruleFiles()
	known := slices.Concat(ensemble, corrections, devices)
	files, err := fs.Glob(shipped, "*/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		require.Contains(t, known, path.Base(f))
	}
}

// decodeEnsemble reads an ensemble without corrections.
func decodeEnsemble(b []byte) (*Ensemble, error) {
	c, err := DecodeRules(b)
	if err != nil {
		return nil, err
	}
	return c[0], nil
}

func TestCorrectionsHoldWhereTheyDoNotKeepTheRules(t *testing.T) {
	small, large := make([]float32, numFeatures), make([]float32, numFeatures)
	large[0] = 100
	leaf := func(class int) *forest.Branch { return &forest.Branch{Class: class} }
	first := AppendEnsemble(nil, forest.TrainedForest{Classes: []string{"copies"}, Trees: []*forest.Branch{leaf(0)}}, nil)
	correct := func(b []byte, engine string, from float32) []byte {
		tree := &forest.Branch{Threshold: from, Less: leaf(0), Other: leaf(1)}
		return AppendEnsemble(b, forest.TrainedForest{Classes: []string{"kept", engine}, Trees: []*forest.Branch{tree}}, nil)
	}
	rules, err := DecodeRules(first)
	require.NoError(t, err)
	require.Equal(t, Copies, rules.Choose(large).Engine)
	corrected := correct(first, "direct", 10)
	rules, err = DecodeRules(corrected)
	require.NoError(t, err)
	require.Equal(t, Copies, rules.Choose(small).Engine)
	require.Equal(t, Direct, rules.Choose(large).Engine)

	// Those after them, as of another release, are asked before them.
	rules, err = DecodeRules(correct(corrected, "serial", 200))
	require.NoError(t, err)
	require.Equal(t, Copies, rules.Choose(small).Engine)
	require.Equal(t, Direct, rules.Choose(large).Engine)
	large[0] = 300
	require.Equal(t, Serial, rules.Choose(large).Engine)

	_, err = DecodeRules(append(corrected, 0))
	require.Error(t, err)
}
