package cli

import (
	"errors"
	"io/fs"

	"github.com/spf13/pflag"

	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// coefficientFlag is --coefficients.
type coefficientFlag struct{ file string }

func (f *coefficientFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, coefficientsFlag, "",
		"correct estimates with a coefficients `file` of vprof calibrate; FILE#NAME selects an entry, none turns it "+
			"off (default: the file named by "+projectFile+", here or in a folder above)")
}

// load reads the file of the flag or of the setting; nil without one.
func (f *coefficientFlag) load() (file *coefficients.File, entry string, err error) {
	choice := f.file
	if choice == "" || choice == "none" {
		return nil, "", nil
	}
	path, entry := coefficients.SplitFileName(choice)
	file, err = coefficients.Open(path)
	if errors.As(err, new(*fs.PathError)) {
		err = usagef("--coefficients: %w", err)
	}
	return file, entry, err
}

// selection returns the coefficients that correct estimates; nil for none.
func (f *coefficientFlag) selection() (*coefficients.Selection, error) {
	file, name, err := f.load()
	if file == nil || err != nil {
		return nil, err
	}
	return &coefficients.Selection{Entries: file.Entries, Name: name, Host: file.Host}, nil
}
