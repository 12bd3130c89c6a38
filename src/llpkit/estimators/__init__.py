"""Classifiers of rows that learn from the counts of bags, in scikit-learn's conventions."""
