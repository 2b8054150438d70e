package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/options"
	"github.com/vprof/vprof/models"
)

// flagError returns a flag's error in vprof's words in place of the parsing library's.
func flagError(cmd *cobra.Command, err error) error {
	var (
		invalid *pflag.InvalidValueError
		unknown *pflag.NotExistError
	)
	switch {
	case errors.As(err, &unknown):
		return usageError{fmt.Errorf("%w%s", err, similarFlag(cmd.Flags(), unknown.GetSpecifiedName()))}
	case !errors.As(err, &invalid):
		return usageError{err}
	}
	flag, value := invalid.GetFlag(), invalid.GetValue()
	var number *strconv.NumError
	isNumber := errors.As(err, &number)
	if _, ofCase := flag.Value.(*fieldFlag); ofCase {
		return usagef("--%s: %w", flag.Name, errors.Unwrap(invalid))
	}
	switch kind := flag.Value.Type(); {
	case isNumber && errors.Is(number.Err, strconv.ErrRange):
		return usagef("--%s: %s is out of range", flag.Name, value)
	case kind == "duration":
		return usagef("--%s: %q is not a duration; write it with its unit, like 500ms, 30s or 5m", flag.Name, value)
	case kind == "bool":
		return usagef("--%s: %q is neither true nor false", flag.Name, value)
	case isNumber && kind == "float64":
		return usagef("--%s: %q is not a number", flag.Name, value)
	case isNumber:
		usage := strings.ReplaceAll(flag.Usage, "`", "")
		return usagef("--%s: %q is not a whole number (%s)", flag.Name, value, usage)
	}
	return usagef("--%s: %q: %w", flag.Name, value, errors.Unwrap(invalid))
}

// integerFlag is a flag of a whole number, which may be written like 1M, 1.28M or 1e6.
type integerFlag struct{ pflag.Value }

// acceptSuffixes reads the flags of whole numbers of a command and of those below it by [integerFlag].
func acceptSuffixes(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if kind := f.Value.Type(); kind == "int" || kind == "int64" {
			f.Value = integerFlag{f.Value}
		}
	})
	for _, below := range cmd.Commands() {
		acceptSuffixes(below)
	}
}

// Set parses the text of an integer flag, for [pflag.Value].
func (f integerFlag) Set(text string) error {
	if n, err := options.ParseInteger(text, 1000); err == nil {
		text = strconv.FormatInt(n, 10)
	}
	return f.Value.Set(text)
}

// refuseFlags refuses the first of some flags that is set; reason is a format with the flag's name.
func refuseFlags(flags *pflag.FlagSet, reason string, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) {
			return usagef(reason, name)
		}
	}
	return nil
}

// emptyFlag returns an error if a flag has an empty value, as in a script whose variable is not set.
func emptyFlag(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			err = usagef("--%s: the value is empty; give one, or remove the flag", f.Name)
		}
	})
	return err
}

// flagSynonyms maps names of flags in other tools, without hyphens, to vprof's flags.
var flagSynonyms = map[string]string{
	"batchsize": "batch", "microbatchsize": "batch", "perdevicetrainbatchsize": "batch", "bs": "batch",
	"gradientaccumulation": "accumulate", "gradientaccumulationsteps": "accumulate", "gradaccum": "accumulate",
	"precision": "amp", "mixedprecision": "amp", "bf16": "amp bf16", "fp16": "amp fp16", "dtype": "weights",
	"gradientcheckpointing": "checkpointing", "activationcheckpointing": "checkpointing", "steps": "until eval",
	"sequencelength": "seq-len", "sequencelen": "seq-len", "maxseqlen": "seq-len", "maxseqlength": "seq-len",
	"cutofflen": "seq-len", "context": "seq-len", "numgpus": "gpus", "nprocpernode": "gpus", "worldsize": "gpus",
	"vram": "gpu-memory", "otherprocesses": "gpu-memory", "memory": "gpu-memory", "optim": "optimizer",
	"loadin4bit": "quantize nf4", "loadin8bit": "quantize int8", "4bit": "quantize nf4", "qlora": "quantize nf4",
	"fsdp": "strategy fsdp2", "zero": "strategy zero3", "deepspeed": "strategy zero3", "pytorch": "torch",
	"compile": "torch-compile", "json": "format json", "csv": "format csv", "out": "export", "format": "to",
	"device": "gpu", "config": "config-path", "samples": "dataset-size", "numsamples": "dataset-size",
}

// similarFlag returns a hint with the flag that an unknown name may stand for.
func similarFlag(flags *pflag.FlagSet, name string) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	called := strings.ReplaceAll(name, "_", "-")
	if f := models.FieldNamed(called); f != nil && f.SetOnly && flags.Lookup("set") != nil {
		return fmt.Sprintf("; write --set %s=VALUE", called)
	}
	if strings.HasPrefix(called, "config") && flags.Lookup("model") != nil && flags.Lookup("config-path") == nil {
		return "; name the file without a flag"
	}
	near := cmp.Or(flagSynonyms[nearest.Normalize(called)], nearest.LikelyTypo(called, names))
	if first, _, _ := strings.Cut(near, " "); !slices.Contains(names, first) {
		near = nearest.LikelyTypo(called, names)
	}
	if near == "" && slices.Contains(names, called) {
		near = called
	}
	if near == "" {
		return ""
	}
	return "; did you mean --" + near + "?"
}

// setOnceFlag is a string flag that refuses a second, different value. Completion parses all flags twice.
type setOnceFlag struct {
	target *string
	set    bool
}

// String returns the text of the flag's value, for [pflag.Value].
func (o *setOnceFlag) String() string {
	if o.target == nil {
		return ""
	}
	return *o.target
}

// Set sets the flag's value, for [pflag.Value].
func (o *setOnceFlag) Set(s string) error {
	if o.set && s != *o.target {
		return fmt.Errorf("given twice; the first value was %q", *o.target)
	}
	*o.target, o.set = s, true
	return nil
}

// Type returns the kind of value that help shows, for [pflag.Value].
func (*setOnceFlag) Type() string { return "string" }
