package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// projectFile is the name of a project's settings file, searched in the working
// directory and above.
const projectFile = "vprof.yaml"

// project are a project's settings.
type project struct {
	// Coefficients is the coefficients file, relative to the project file; #NAME at its end
	// selects an entry.
	Coefficients string `yaml:"coefficients"`
}

// projectFolder returns the folder of a directory's project file, there or above; empty without one.
func projectFolder(dir string) string {
	for {
		if _, err := os.Stat(filepath.Join(dir, projectFile)); !errors.Is(err, fs.ErrNotExist) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// findProject reads the project settings of a directory; zero without a file.
func findProject(dir string) (project, error) {
	folder := projectFolder(dir)
	if folder == "" {
		return project{}, nil
	}
	path := filepath.Join(folder, projectFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return project{}, err
	}
	return readProject(path, data)
}

func readProject(path string, data []byte) (project, error) {
	var p project
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return p, usagef("%s: %s", path, strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	if file, name := coefficients.Split(p.Coefficients); file != "" && !filepath.IsAbs(file) {
		p.Coefficients = filepath.Join(filepath.Dir(path), file)
		if name != "" {
			p.Coefficients += "#" + name
		}
	}
	return p, nil
}

// coefficientFlag is --coefficients.
type coefficientFlag struct{ file string }

func (f *coefficientFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "coefficients", "",
		"correct estimates with `file` of vprof calibrate; FILE#NAME selects an entry, none turns it off "+
			"(default: coefficients of "+projectFile+", here or above)")
}

// load reads the file of the flag or the project; nil without one.
func (f *coefficientFlag) load() (file *coefficients.File, entry string, err error) {
	choice := f.file
	if choice == "" {
		here, err := os.Getwd()
		if err != nil {
			return nil, "", err
		}
		p, err := findProject(here)
		if err != nil {
			return nil, "", err
		}
		choice = p.Coefficients
	}
	if choice == "" || choice == "none" {
		return nil, "", nil
	}
	path, entry := coefficients.Split(choice)
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
	return &coefficients.Selection{Entries: file.Entries, Name: name}, nil
}
