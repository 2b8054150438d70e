package trainers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fact is a value that a configuration sets, under vprof's name.
type fact struct {
	value string
	// from is the key in a file, or the flag, that gave the value; the zero Key if it is the trainer's default.
	from Key
}

// facts maps names to values. Most are names of flags, such as "batch". Others ("tuner", "lora-r") are only read by
// rules and by flags that combine several facts.
type facts map[string]fact

func (f facts) set(name, value string, from Key) { f[name] = fact{value, from} }

// appendOptions appends options to the value of a fact, as in "fsdp2:mp=bf16,cp=2".
func (f facts) appendOptions(name string, options ...string) {
	v, separator := f[name], ":"
	if strings.Contains(v.value, ":") {
		separator = ","
	}
	if len(options) > 0 {
		v.value += separator + strings.Join(options, ",")
		f[name] = v
	}
}

// options returns the options of a flag's value, from pairs of an option's name and its fact. Options whose fact is
// missing, false or zero are left out.
func (f facts) options(pairs ...string) (list []string) {
	for i := 0; i < len(pairs); i += 2 {
		if v := f[pairs[i+1]].value; v != "false" && strings.Trim(v, "0.") != "" {
			list = append(list, pairs[i]+"="+strings.ReplaceAll(v, ",", "+"))
		}
	}
	return list
}

// integerFacts are the facts that must be positive whole numbers.
var integerFacts = []string{
	"batch", "accumulate", "seq-len", "lora-r", "lora-alpha", "gpus", "chunked-loss", "num-labels",
	meshCopies, meshShard, meshTensor, meshContext, meshExperts, meshPipeline, microBatch, "qat-group", "every",
	totalBatch, globalBatch, "empty-cache", "eval-batch", "eval-scores", "new-tokens",
}

// checkCount returns what is wrong with the value of a fact of integerFacts; empty if it is valid.
func checkCount(name, value string) string {
	if !slices.Contains(integerFacts, name) || name == "gpus" && strings.HasPrefix(value, "$") {
		return ""
	}
	if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 1 || n > 1<<40 {
		return "is not a whole number from 1 on"
	}
	return ""
}

// factsOf returns the facts that a flag's value sets: lora-r for --lora r=8, or the fact of the flag's name.
func factsOf(flag, value string) map[string]string {
	switch {
	case flag == "amp":
		return map[string]string{"mixed": strings.TrimSuffix(value, "none")}
	case flag == "evaluate" && value == "none":
		return map[string]string{"evaluates": ""}
	}
	all, prefix := map[string]string{}, strings.Replace(flag, "evaluate", "eval", 1)
	for option := range strings.SplitSeq(value, ",") {
		name, value, has := strings.Cut(option, "=")
		if !has {
			return map[string]string{flag: option}
		}
		all[prefix+"-"+name] = value
	}
	return all
}

// integerFact returns the value of a fact that must be a whole number from least on; otherwise if it is missing.
func (c *Config) integerFact(name string, otherwise, least int) (int, error) {
	const most = 1 << 30
	f := c.facts[name]
	if f.value == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(f.value)
	if err != nil || n < least || n > most {
		return 0, c.malformedError(f, fmt.Sprintf("is not a whole number from %d on", least))
	}
	return n, nil
}

// satisfy reports whether the facts satisfy a rule's condition.
func (f facts) satisfy(when map[string]OneOf) bool {
	for name, values := range when {
		is := f[name].value
		if !slices.Contains(values, is) && (is == "" || !slices.Contains(values, "*")) {
			return false
		}
	}
	return true
}
