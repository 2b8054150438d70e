package pt2

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2/export"
)

// Changed returns the model of a file whose program has been changed.
func Changed(file string, change func(p *export.Program)) (models.Model, error) {
	p, err := readFile(file)
	if err != nil {
		return models.Model{}, err
	}
	change(p)
	return newModel(file, Scheme+":changed", "", p, nil)
}

// Open makes the model of a file. The error is an [*input.FormatError], an
// [*UnknownOperatorsError] or that of reading the file.
func Open(path string) (models.Model, error) { return openFile(path, nil) }
