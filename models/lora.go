package models

import (
	"fmt"
	"strconv"
	"strings"
)

// LoRA are low-rank adapters beside linear layers of a frozen model, as
// peft.LoraConfig describes them.
type LoRA struct {
	// Rank is r, Alpha lora_alpha, which has no influence on memory.
	Rank, Alpha int64
	// Dropout of what goes into the adapters.
	Dropout float64
	// Targets are names of layers, or ends of their paths; none means all
	// linear layers but the output layer of a language model.
	Targets []string
}

// allLinear is how a command line and peft name all linear layers.
const allLinear = "all-linear"

// maxRank is more than anybody uses: the widest layers have no higher rank.
const maxRank = 1 << 16

// ParseLoRA reads options like "r=8,alpha=16,dropout=0.05,target=all-linear".
// Several targets are joined by "+", or follow each other:
// "target=q_proj,v_proj". What is left out is as in peft: rank 8, alpha 8, no
// dropout; all linear layers.
func ParseLoRA(text string) (LoRA, error) {
	l := LoRA{Rank: 8, Alpha: 8}
	seen := map[string]bool{}
	last := ""
	for field := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(field), "=")
		switch {
		case ok && seen[key]:
			return LoRA{}, fmt.Errorf("%s: given twice", key)
		case !ok && last == "target" && len(l.Targets) > 0:
			key, value = last, strings.Join(l.Targets, "+")+"+"+key
		case !ok:
			return LoRA{}, fmt.Errorf("%q is not key=value; the keys are r, alpha, dropout and target", field)
		}
		last, seen[key] = key, true
		if err := l.set(key, value); err != nil {
			return LoRA{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	return l, nil
}

func (l *LoRA) set(key, value string) (err error) {
	switch key {
	case "r":
		l.Rank, err = parseWithin(value, 1, maxRank)
	case "alpha":
		l.Alpha, err = parseWithin(value, 1, 1<<30)
	case "dropout":
		l.Dropout, err = strconv.ParseFloat(value, 64)
		if err != nil || !(l.Dropout >= 0 && l.Dropout < 1) {
			return fmt.Errorf("%q is not a probability below 1", value)
		}
	case "target":
		l.Targets = nil
		if value == allLinear {
			return nil
		}
		l.Targets = strings.Split(value, "+")
		for _, t := range l.Targets {
			if t == "" {
				return fmt.Errorf("%q has an empty name; use %s, or names like q_proj+v_proj", value, allLinear)
			}
		}
	default:
		return fmt.Errorf("there is no such key; the keys are r, alpha, dropout and target")
	}
	return err
}

func parseWithin(value string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", value, low, high)
	}
	return n, nil
}

// String is what [ParseLoRA] reads; empty for nil.
func (l *LoRA) String() string {
	if l == nil {
		return ""
	}
	target := allLinear
	if len(l.Targets) > 0 {
		target = strings.Join(l.Targets, "+")
	}
	dropout := ""
	if l.Dropout > 0 {
		dropout = fmt.Sprintf("dropout=%g,", l.Dropout)
	}
	return fmt.Sprintf("r=%d,alpha=%d,%starget=%s", l.Rank, l.Alpha, dropout, target)
}

// MarshalText implements [encoding.TextMarshaler].
func (l LoRA) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *LoRA) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLoRA(string(text))
	return err
}
