"""The verbs of each public class, one class a file."""
