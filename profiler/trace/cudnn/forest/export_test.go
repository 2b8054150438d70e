package forest

// Trees returns the number of trees.
func (f *Forest) Trees() int { return len(f.trees) }
