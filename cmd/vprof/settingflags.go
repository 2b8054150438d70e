package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vprof/vprof/models"
)

// namedSetting is a setting with a flag. Hidden are flags from before --set, of settings
// that only one project has.
type namedSetting struct {
	name, usage string
	hidden      bool
}

// namedSettings are the settings that have a flag of their own.
var namedSettings = []namedSetting{
	{"seq-len", "tokens `n` of a sequence, where the model has any (default: the model's)", false},
	{"image-size", "height and width `n` of an image in pixels, where the model has any (default: the model's)", false},
	{"audio-seconds", "seconds `n` of a clip, where the model has any (default: the model's)", false},
	{"max-length", "tokens `n` of a text, where the model has any (default: the model's)", false},
	{"chunked-loss", "chunks `n` of tokens that scores and loss of a language model are computed in, one after the other, as torchtune does (default: all at once)", false},
	{"linear-cross-entropy", "1 to compute scores and loss of a language model by torch.nn.functional.linear_cross_entropy, in chunks of tokens (`n` is 0 or 1)", false},
	{"n-negatives", "negatives `n` of an anchor, where the model has any (default: the model's)", true},
	{"n-positives", "positives `n` of an anchor, where the model has any (default: the model's)", true},
	{"stride", "frames `n` from one patch to the next, where the model has any (default: the model's)", true},
	{"n-patches", "patches `n` of a spectrogram, where the model has any (default: the model's)", true},
}

// settingFlags are the flags for the numbers that a model leaves to the case: --set
// name=value for any of them, and a flag each for the usual ones.
type settingFlags struct {
	flags *pflag.FlagSet
	pairs []string
}

func (f *settingFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	for _, s := range namedSettings {
		flags.Int64(s.name, 0, s.usage)
		if s.hidden {
			hide(flags, s.name)
		}
	}
	flags.StringArrayVar(&f.pairs, "set", nil, "another setting of the model, as `name=value` (see vprof models show); may be repeated")
}

// values are the settings given; nil if there are none.
func (f *settingFlags) values() (models.Settings, error) {
	s, err := f.pairValues("--set")
	if err != nil {
		return nil, err
	}
	for _, named := range namedSettings {
		if !f.flags.Changed(named.name) {
			continue
		}
		if _, twice := s[named.name]; twice {
			return nil, usagef("--%s: given with --set, too", named.name)
		}
		s[named.name], _ = f.flags.GetInt64(named.name)
	}
	if len(s) == 0 {
		return nil, nil
	}
	return s, nil
}

// pairValues are the settings given as name=value, by a flag of that name.
func (f *settingFlags) pairValues(flag string) (models.Settings, error) {
	s := models.Settings{}
	for _, pair := range f.pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("%s: %q is not name=value", flag, pair)
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, usagef("%s %s: %q is not a whole number", flag, name, value)
		}
		if _, twice := s[name]; twice {
			return nil, usagef("%s %s: given twice", flag, name)
		}
		s[name] = n
	}
	return s, nil
}

// defaultsOf says which settings decide what a step takes and were not chosen in any of
// the cases; empty if the model has none that have a flag.
func defaultsOf(m models.Model, cases ...models.Case) string {
	var words []string
	for _, named := range namedSettings {
		i := slices.IndexFunc(m.Settings, func(s models.Setting) bool { return s.Name == named.name && s.Inert == "" })
		if i < 0 || m.Settings[i].Default == 0 { // none: a lever that is not turned
			continue
		}
		chosen := func(c models.Case) bool {
			v, given := c.Settings[named.name]
			return given && v != m.Settings[i].Default
		}
		if !slices.ContainsFunc(cases, chosen) {
			words = append(words, fmt.Sprintf("%s %d", named.name, m.Settings[i].Default))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "by default " + strings.Join(words, ", ")
}
