package systems

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/advise/configfile"
)

// commonKeys are the configuration keys of transformers and Lightning for each of vprof's value names. They are used
// for values that no "name=path" pair names, in the group that holds the batch size.
var commonKeys = map[string][]string{
	"checkpointing": {"gradient_checkpointing", "use_gradient_checkpointing", "activation_checkpointing"},
	"accumulate":    {"gradient_accumulation_steps", "accumulate_grad_batches", "accumulation_steps"},
	"amp":           {"bf16", "fp16", "precision", "mixed_precision"},
}

// IsMapped reports whether one of the "name=path" pairs has the given name.
func IsMapped(pairs []string, name string) bool {
	return slices.ContainsFunc(pairs, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
}

// ReadCommonKeys reads checkpointing, micro-batches and precision from a configuration under the keys of transformers
// and Lightning, in the group of the batch size, unless "name=path" pairs name their keys. Missing values are left out.
func ReadCommonKeys(config string, pairs []string) (map[string]any, error) {
	group := ""
	for _, pair := range pairs {
		if at, ok := strings.CutPrefix(pair, "batch="); ok {
			group = at[:strings.LastIndexByte(at, '.')+1]
		}
	}
	values := map[string]any{}
	for name, keys := range commonKeys {
		if IsMapped(pairs, name) {
			continue
		}
		for _, key := range keys {
			v, err := readValue(config, group+key)
			if err != nil {
				return nil, err
			}
			if v == nil || v == "auto" { // which leaves it to somebody else
				continue
			}
			value, err := toCaseValue(name, v)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", config, group+key, err)
			}
			if _, seen := values[name]; !seen || value != "none" {
				values[name] = value // one of bf16 and fp16 is false where the other is true
			}
		}
	}
	return values, nil
}

// readValue returns the value at a path of a file; nil if there is none. "bf16: true" is returned as "bf16". In a
// DeepSpeed file the path is a group with the key "enabled".
func readValue(config, at string) (any, error) {
	v, err := configfile.Value(config, at)
	if errors.As(err, new(*configfile.GroupError)) {
		v, err = configfile.Value(config, at+".enabled")
	}
	if v == true && strings.HasSuffix(at, "bf16") {
		return "bf16", err
	}
	return v, err
}
