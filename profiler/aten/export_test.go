package aten

// Lookup finds an operator by its qualified name ("aten::add") and overload ("Tensor", or "" for the default one).
func Lookup(name, overload string) (*Operator, bool) {
	if overload != "" && overload != "default" {
		name += "." + overload
	}
	e := entryOf(name)
	if e == nil {
		return nil, false
	}
	return e.operator(), true
}

// Known reports whether ByTarget finds the target.
func Known(target string) bool { return entryOf(nameOf(target)) != nil }
